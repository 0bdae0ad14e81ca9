"""From a model and an example to its channel graph; the model is left exactly as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_map_only

from rbprune.errors import ModelError, UnprunableError
from rbprune.graph.channels import ChannelGraph
from rbprune.graph.ids import FROZEN
from rbprune.graph.residual import find_blocks
from rbprune.graph.rules import carry, is_layer
from rbprune.graph.rules.layers import parameter
from rbprune.graph.sites import Site, collect
from rbprune.graph.walk import Walk


def trace(model: nn.Module, example_inputs: Any, *, keep: Sequence[str] = ()) -> ChannelGraph:
    """Find which channels of ``model`` belong together.

    ``example_inputs`` is one batch (a tensor, or a tuple of arguments); ``keep`` names modules whose output channels
    must all stay. The model, its training flags and the random state are unchanged afterwards.

    >>> graph = trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4))
    >>> [(site.name, site.channels, site.consumers) for site in graph.sites]
    [('0', 3, ['2'])]
    """
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    modules = dict(model.named_modules(remove_duplicate=False))
    unknown = [name for name in keep if name not in modules]
    if unknown:
        raise ModelError(f"keep names {unknown[0]!r}, which is no module of this {type(model).__name__}")
    walk = Walk(model, (*keep, *_shared(model)))
    graphs = _graphs(model, inputs)
    for graph in graphs:
        _walk(walk, graph)
        if graph is graphs[0]:
            applied = dict(walk.applied)
    walk.freeze_shared()
    component = walk.ids.components()
    sites = collect(walk.axes.values(), component)
    _mark_residual(sites, walk, component, graphs[0])
    return ChannelGraph(model, sites, _frozen(walk, sites), list(walk.axes.values()), applied)


def _graphs(model: nn.Module, inputs: tuple[Any, ...]) -> list[fx.Graph]:
    """The network in evaluation and, where it is another one (auxiliary heads), in training."""
    found: list[fx.Graph] = []
    for training in (False, True):
        with _mode(model, training), _buffers_restored(model):
            graph = _symbolic(model)
            if found and _text(graph) == _text(found[0]):
                continue
            _shapes(model, graph, inputs)
            found.append(graph)
    return found


def _text(graph: fx.Graph) -> list[tuple[Any, ...]]:
    return [(n.op, str(n.target), str(n.args)) for n in graph.nodes]


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Training or evaluation mode without gradients, and everything put back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class _Tracer(fx.Tracer):
    """Follows every module that it can; one whose forward cannot be followed is a leaf, and so has no rule."""

    record_stack_traces = True

    def __init__(self, leaves: set[str]) -> None:
        super().__init__()
        self.leaves, self.path = leaves, [""]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.leaves or is_layer(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        self.path.append(self.path_of_module(m))
        result = super().call_module(m, forward, args, kwargs)
        self.path.pop()
        return result


def _symbolic(model: nn.Module) -> fx.Graph:
    leaves: set[str] = set()
    while True:
        tracer = _Tracer(leaves)
        try:
            return tracer.trace(model)
        except Exception as error:
            stuck = tracer.path[-1]
            if stuck and stuck not in leaves:
                leaves.add(stuck)
                continue
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UnprunableError(
                f"the forward of {type(model).__name__} cannot be traced: {reason}; control flow that depends on data "
                "cannot be followed in the outermost module: move it into a submodule (which is then left alone), "
                "or prune the submodule that has none"
            ) from error


def _shapes(model: nn.Module, graph: fx.Graph, inputs: tuple[Any, ...]) -> None:
    """Note the shape of every result, without computing it where that is possible."""
    given = [tuple(i.shape) if isinstance(i, Tensor) else type(i).__name__ for i in inputs]
    shapes = _Shapes(fx.GraphModule(model, graph))
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            shapes.run(*tree_map_only(Tensor, fake.from_tensor, inputs))
    except DataDependentOutputException:
        shapes.run(*inputs)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"the model's forward fails on the example inputs {given}: {reason}; pass example_inputs that it accepts"
        ) from error


@contextmanager
def _buffers_restored(model: nn.Module) -> Iterator[None]:
    saved = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in saved:
            buffer.copy_(value)


class _Shapes(fx.Interpreter):
    """Runs a graph and notes shapes."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["like"] = tree_map_only(Tensor, lambda t: torch.empty(t.shape, device="meta"), result)
        return result


def _walk(walk: Walk, graph: fx.Graph) -> None:
    env: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            env[node] = walk.frozen_like(node.meta["like"])
            continue
        if node.op == "get_attr":
            like = node.meta["like"]
            env[node] = parameter(walk, node, like) if isinstance(like, Tensor) else like
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "output":
            walk.refuse(node, args, "the network's output")
            continue
        try:
            env[node] = carry(walk, node, args, kwargs)
        except (TypeError, IndexError, RuntimeError, ValueError, AttributeError):
            # a rule that does not understand its arguments knows nothing about the operation
            reason = f"{walk.describe(node)} is called in a way without a rule"
            env[node] = walk.refuse(node, (args, kwargs), reason)


def _shared(model: nn.Module) -> list[str]:
    """Layers that share a parameter: only the model's author can make them whole again."""
    owners: dict[int, str] = {}
    found = []
    for name, module in model.named_modules():
        for tensor in module.parameters(recurse=False):
            other = owners.setdefault(id(tensor), name)
            if other != name:
                found += [other, name]
    return found


def _frozen(walk: Walk, sites: list[Site]) -> dict[str, str]:
    """Why some or all outputs of a layer stay, or all of it."""
    reasons = walk.ids.reasons()
    covered = {part.owner for site in sites for part in site.parts if part.role in ("out", "along")}
    frozen = {}
    for (owner, role), axis in walk.axes.items():
        if role == "out" or (role == "along" and isinstance(walk.modules.get(owner), _ConvNd)):
            reason = next((reasons[i] for i in axis.ids.tolist() if i in reasons), None)
            if reason is None and bool((axis.ids == FROZEN).any()):
                reason = "it carries channels that cannot be removed"
            if reason is None and owner not in covered:
                reason = "its channels are bound to each other by sizes written into the model, so none can go alone"
            if reason is not None:
                frozen[owner] = reason
    for name, module in walk.modules.items():
        if isinstance(module, _ConvNd | nn.Linear) and not {(name, "out"), (name, "along")} & walk.axes.keys():
            frozen[name] = "the graph does not see it: it is not called, or only inside an operation without a rule"
    return frozen


def _mark_residual(sites: list[Site], walk: Walk, component: Tensor, graph: fx.Graph) -> None:
    here = set(graph.nodes)
    sums = {node: (left, right, ids) for node, left, right, ids in walk.sums if node in here}
    blocks = find_blocks(graph, [(node, left, right) for node, (left, right, _) in sums.items()])
    summed = {c for block in blocks for c in component[sums[block.sum][2].unique()].tolist() if c != FROZEN}
    for site in sites:
        out = next(part for part in site.parts if part.role == "out")
        channel = int(component[walk.axes[out.owner, "out"].ids[out.positions[0, 0]]])
        block = next((b for b in blocks if walk.makers[out.owner] in b.nodes), None)
        if channel in summed:
            site.residual = "sum"
        elif block is not None:
            site.residual, site.block, site.downsample = "inside", block.name, block.downsample
