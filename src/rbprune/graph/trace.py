"""From a model and an example to its channel graph; the model is left exactly as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from rbprune.errors import ModelError, UnprunableError
from rbprune.graph.channels import ChannelGraph
from rbprune.graph.ids import FROZEN, compact
from rbprune.graph.residual import find_blocks
from rbprune.graph.rules import carry
from rbprune.graph.rules.layers import parameter
from rbprune.graph.shapes import note_shapes
from rbprune.graph.sites import Site, collect
from rbprune.graph.walk import Walk

_NOT_THE_USERS = ("/torch/", "/rbprune/graph/")


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
    component = walk.ids.components()
    sites = collect(walk.axes.values(), component)
    _mark_residual(sites, walk, component, graphs[0])
    return ChannelGraph(model, sites, _frozen(walk, sites), list(walk.axes.values()), applied)


def _graphs(model: nn.Module, inputs: tuple[Any, ...]) -> list[fx.Graph]:
    """The network in evaluation and, where it is another one (auxiliary heads), in training."""
    found: list[fx.Graph] = []
    for training in (False, True):
        with _mode(model, training):
            graph = _symbolic(model)
            if found and _text(graph) == _text(found[0]):
                continue
            note_shapes(model, graph, inputs)
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

    def __init__(self, leaves: set[str]) -> None:
        super().__init__()
        self.leaves, self.path = leaves, [""]

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta["where"] = _where()
        return node

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.leaves or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        self.path.append(self.path_of_module(m))
        result = super().call_module(m, forward, args, kwargs)
        self.path.pop()
        return result


def _where() -> str | None:
    """File and line of the innermost frame that is neither torch's nor ours: fx's own stack traces take ten times as
    long."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not any(part in file for part in _NOT_THE_USERS):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


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
            for ids in tree_leaves(args):
                if isinstance(ids, Tensor):
                    walk.ids.freeze(ids, "the network's output")
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
    """Why some or all outputs of a layer stay."""
    reasons = walk.ids.reasons()
    open_to_removal = {name for site in sites for name in site.producers}
    frozen = {}
    for (owner, role), axis in walk.axes.items():
        if role == "out":
            reason = next((reasons[i] for i in axis.ids.tolist() if i in reasons), None)
            if reason is None and owner not in open_to_removal:
                reason = "its channels are bound to each other by sizes written into the model, so none can go alone"
            if reason is not None:
                frozen[owner] = reason
    return frozen


def _mark_residual(sites: list[Site], walk: Walk, component: Tensor, graph: fx.Graph) -> None:
    here = set(graph.nodes)
    sums = {node: (left, right, ids) for node, left, right, ids in walk.sums if node in here}
    blocks = find_blocks(graph, [(node, left, right) for node, (left, right, _) in sums.items()])
    summed = {c for block in blocks for c in component[compact(sums[block.sum][2])[0].unique()].tolist() if c != FROZEN}
    for site in sites:
        out = next(part for part in site.parts if part.role == "out")
        channel = int(component[walk.axes[out.owner, "out"].ids[out.positions[0, 0]]])
        block = next((b for b in blocks if walk.makers[out.owner] in b.nodes), None)
        if channel in summed:
            site.residual = "sum"
        elif block is not None:
            site.residual, site.block, site.downsample = "inside", block.name, block.downsample
