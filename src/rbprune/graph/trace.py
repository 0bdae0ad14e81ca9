"""From a model and an example to its channel graph; the model is left exactly as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map_only

from rbprune.errors import ModelError, UnprunableError
from rbprune.graph.channels import ChannelGraph
from rbprune.graph.ids import FROZEN
from rbprune.graph.residual import find_blocks
from rbprune.graph.rules import Walk, carry, describe
from rbprune.graph.sites import Site, collect


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
    with _undisturbed(model):
        shapes = _Shapes(fx.GraphModule(model, _symbolic(model)))
        outputs = _run(shapes, inputs)
    walk = Walk(modules, tuple(keep))
    _freeze_shared(walk, model)
    _walk(walk, shapes.graph)
    sites = collect(walk.axes.values(), walk.ids.components())
    _mark_residual(sites, walk, shapes.graph)
    reasons = walk.ids.reasons()
    frozen = {
        axis.module: next(reasons[i] for i in axis.ids.tolist() if i in reasons)
        for (_, role), axis in walk.axes.items()
        if role == "out" and any(i in reasons for i in axis.ids.tolist())
    }
    return ChannelGraph(model, sites, frozen, shapes.positions, batch=_batch(outputs))


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients, and everything put back afterwards."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            yield
    finally:
        for module, flag in training.items():
            module.training = flag


def _symbolic(model: nn.Module) -> fx.Graph:
    try:
        return fx.Tracer().trace(model)
    except Exception as error:
        raise UnprunableError(
            f"the forward of {type(model).__name__} cannot be traced: {error}; "
            "control flow that depends on data cannot be followed: rewrite it, or prune the submodule that has none"
        ) from error


def _run(shapes: _Shapes, inputs: tuple[Any, ...]) -> Any:
    try:
        return shapes.run(*inputs)
    except Exception as error:
        given = [tuple(i.shape) if isinstance(i, Tensor) else type(i).__name__ for i in inputs]
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"the model's forward fails on the example inputs {given}: {reason}; pass example_inputs that it accepts"
        ) from error


class _Shapes(fx.Interpreter):
    """Runs the example once, noting the shape of every result and how often each weighted layer is applied."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.positions: dict[str, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["like"] = tree_map_only(Tensor, lambda t: torch.empty(t.shape, device="meta"), result)
        if n.op == "call_module" and isinstance(result, Tensor):
            module = self.fetch_attr(str(n.target))
            if hasattr(module, "weight") and getattr(module, "weight", None) is not None and module.weight.dim() >= 2:
                width = result.shape[1] if module.weight.dim() > 2 else result.shape[-1]
                count = result[0].numel() // width
                self.positions[str(n.target)] = self.positions.get(str(n.target), 0) + count
        return result


def _batch(outputs: Any) -> int:
    first = next((t for t in torch.utils._pytree.tree_leaves(outputs) if isinstance(t, Tensor)), None)
    return int(first.shape[0]) if first is not None and first.dim() else 1


def _walk(walk: Walk, graph: fx.Graph) -> None:
    env: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            env[node] = walk.frozen_like(node.meta["like"])
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "output":
            walk.refuse(node, args, "the network's output")
            continue
        try:
            env[node] = carry(walk, node, args, kwargs)
        except (TypeError, IndexError, RuntimeError, ValueError):
            # a rule that does not understand its arguments knows nothing about the operation
            env[node] = walk.refuse(node, (args, kwargs), f"{describe(node, walk)} is called in a way without a rule")


def _freeze_shared(walk: Walk, model: nn.Module) -> None:
    """Layers that share a parameter are made whole again only by the model's author."""
    owners: dict[int, str] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            other = owners.setdefault(id(parameter), name)
            if other != name:
                walk.keep += (other, name)


def _mark_residual(sites: list[Site], walk: Walk, graph: fx.Graph) -> None:
    component = walk.ids.components()
    summed = {int(c) for *_, ids in walk.sums for c in component[ids.unique()].tolist() if c != FROZEN}
    blocks = find_blocks(graph, [(node, left, right) for node, left, right, _ in walk.sums])
    for site in sites:
        out = next(part for part in site.parts if part.role == "out")
        channel = component[walk.axes[out.module, "out"].ids[out.positions[0, 0]]]
        block = next((b for b in blocks if walk.makers[out.module] in b.nodes), None)
        if int(channel) in summed:
            site.residual = "sum"
        elif block is not None:
            site.residual = "inside"
        if block is not None and site.residual == "inside":
            site.block, site.downsample = block.name, block.downsample
