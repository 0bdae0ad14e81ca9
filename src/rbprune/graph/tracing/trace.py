"""From a model and an example to its channel graph; the model is left exactly as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_leaves

from rbprune.errors import ModelError, nearest
from rbprune.graph.channel_graph import ChannelGraph
from rbprune.graph.ids import FROZEN, compact
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.rules import apply_rule, size_dependence
from rbprune.graph.rules.layers import parameter
from rbprune.graph.rules.verify_custom_layers import custom_layers, verify_custom_layers
from rbprune.graph.sites import Site, collect_sites
from rbprune.graph.tracing.branches import apart_from_sites, find_branches
from rbprune.graph.tracing.compare_with_forward import MetaDevice, TracedForward
from rbprune.graph.tracing.direct_trace import direct_trace
from rbprune.graph.tracing.hooks import HookedModule, find_hooked_modules, hooks_on_output, note_hook_effects
from rbprune.graph.tracing.module_widths import WidthReads, freeze_read_widths
from rbprune.graph.tracing.preserve_model import preserve_model
from rbprune.graph.tracing.residual import Block, find_blocks
from rbprune.graph.tracing.shapes import note_shapes
from rbprune.graph.tracing.sharded import refuse_sharded
from rbprune.graph.tracing.shared_tensors import freeze_shared_tensors
from rbprune.graph.tracing.tracer import trace_forward
from rbprune.utils.garbage import collector_paused
from rbprune.utils.inputs import arguments


@collector_paused()
def trace(model: nn.Module, example_inputs: Any, *, keep: Sequence[str] = ()) -> ChannelGraph:
    """Find which channels of ``model`` belong together.

    ``example_inputs`` is one batch: a tensor, a tuple or list of arguments, or a dict of keyword arguments. ``keep``
    names modules whose output channels must all stay. The model and the random state are unchanged afterwards, also
    when this raises.

    >>> import torch
    >>> graph = trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4))
    >>> [(site.name, site.channels, site.consumers) for site in graph.sites]
    [('0', 3, ['2'])]
    """
    propagation = Propagation(model, tuple(keep))
    _check_traceable(model, propagation.modules, keep)
    hooked = find_hooked_modules(model)
    graphs, width_reads = _graphs(propagation, model, arguments(example_inputs))
    propagation.size_reads = width_reads.sizes
    for graph in graphs:
        _propagate(propagation, graph)
        if graph is graphs[0]:
            applied, fixed = dict(propagation.applied), dict(propagation.fixed)
    freeze_shared_tensors(propagation)
    freeze_read_widths(propagation, width_reads)
    component = propagation.ids.components()
    sites = collect_sites(propagation.axes.values(), component)
    blocks = [_blocks(propagation, graph) for graph in graphs]
    _mark_residual(sites, propagation, component, blocks[0])
    branches, staying = find_branches(propagation, graphs, blocks, hooked)
    branches = {branch.name: branch for branch in apart_from_sites(branches.values(), sites)}
    frozen, axes = _why_frozen(propagation, sites, component), list(propagation.axes.values())
    return ChannelGraph(model, sites, frozen, axes, applied, fixed, branches, staying, example_inputs)


_WITHOUT_SHAPE: tuple[type, ...] = (UninitializedParameter,)
"""Parameters of lazy layers that were never called; asked by type, since ``is_lazy`` takes fifty times as long."""


def _check_traceable(model: nn.Module, modules: Mapping[str, nn.Module], keep: Sequence[str]) -> None:
    refuse_sharded(modules)
    names = ("_orig_mod", "module", "_forward_module")
    inside = next((name for name in names if name in model._modules and _is_wrapper(model)), None)
    if inside:
        raise ModelError(
            f"a {type(model).__name__} is a wrapper around the model; prune its .{inside.replace('_forward_', '')} and "
            "wrap it again afterwards"
        )
    unknown = [name for name in keep if name not in modules]
    if unknown:
        hint = nearest(unknown[0], modules)
        raise ModelError(f"keep names {unknown[0]!r}, which is no module of this {type(model).__name__}{hint}")
    for path, module in modules.items():
        lazy = [name for name, p in module._parameters.items() if type(p) in _WITHOUT_SHAPE]
        if lazy:
            name = f"{path}.{lazy[0]}".lstrip(".")
            raise ModelError(f"{name!r} has no shape yet; run the model once before tracing it")


def _is_wrapper(model: nn.Module) -> bool:
    return type(model).__module__.startswith(
        ("torch.nn.parallel", "torch._dynamo", "lightning_fabric.wrappers", "lightning.fabric.wrappers")
    )


def _graphs(propagation: Propagation, model: nn.Module, inputs: Any) -> tuple[list[fx.Graph], WidthReads]:
    """The network in evaluation and, where it is another one (auxiliary heads), in training; the widths it reads."""
    found: list[fx.Graph] = []
    width_reads = WidthReads()
    tensors = (value for value in tree_leaves(inputs) if isinstance(value, Tensor))
    propagation.batch = next((len(t) for t in tensors if t.dim() > 1), 1) or 1
    root_hooks = hooks_on_output(model)
    judged: dict[str, HookedModule] = {}
    meta = MetaDevice()
    custom = custom_layers(propagation.modules.values())
    if custom:
        with preserve_model(model, training=False):
            propagation.verified = verify_custom_layers(custom)
    direct = direct_trace(propagation, inputs, width_reads)
    if direct is not None:
        return [direct], width_reads
    width_reads = WidthReads()
    for training in (False, True):
        hooked = find_hooked_modules(model)
        with preserve_model(model, training=training):
            graph = trace_forward(propagation, inputs, hooked, width_reads)
            constants = {name: value for name, value in vars(model).items() if name.startswith("_tensor_constant")}
            if not found or _signature(graph) != _signature(found[0]):
                note_shapes(model, graph, inputs, hooked)
                note_hook_effects(propagation, hooked)
                found.append(graph)
                judged = hooked
        TracedForward(model, graph, inputs, training, judged, root_hooks, constants, meta).compare()
    return found, width_reads


def _signature(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """What a graph does; whether dropout is told that it trains makes no other network."""
    return [
        (n.op, str(n.target), str(n.args), str({k: v for k, v in n.kwargs.items() if k != "training"}))
        for n in graph.nodes
    ]


def _propagate(propagation: Propagation, graph: fx.Graph) -> None:
    """Send identities through every operation of a graph, from the inputs to the outputs."""
    env: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            env[node] = propagation.frozen_like(info(node).result)
            continue
        if node.op == "get_attr":
            like = info(node).result
            env[node] = parameter(propagation, node, like) if isinstance(like, Tensor) else like
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "output":
            for ids in tree_leaves(args):
                if isinstance(ids, Tensor):
                    propagation.ids.freeze(ids, Reason(Kind.OUTPUT, "the network's output"))
            size_dependence.freeze_counted(propagation, node, size_dependence.counted_by_arguments(propagation, node))
            continue
        try:
            env[node] = apply_rule(propagation, node, args, kwargs)
        except (TypeError, IndexError, RuntimeError, ValueError, AttributeError):
            # a rule that does not understand its arguments knows nothing about the operation
            env[node] = propagation.refuse(node, (args, kwargs), "is called in a way without a rule", Kind.NO_RULE)


def _why_frozen(propagation: Propagation, sites: list[Site], component: Tensor) -> dict[str, Reason]:
    """The layers of which outputs stay, some or all, each with the first reason for that."""
    reasons, bonds = propagation.ids.reasons(), None
    held = component == FROZEN
    covered = {part.owner for site in sites for part in site.parts if part.role in ("out", "along")}
    frozen = {}
    for (owner, role), axis in propagation.axes.items():
        if role == "out" or (role == "along" and isinstance(propagation.modules.get(owner), _ConvNd)):
            staying = axis.ids[held[axis.ids]].tolist()
            reason = next((reasons[i] for i in staying if i in reasons), None)
            if reason is None and FROZEN in staying:
                reason = Reason(Kind.MEETS_FIXED, "it carries channels that cannot be removed")
            if reason is None and owner not in covered and len(axis.ids) == 1:
                reason = Reason(Kind.SINGLE, "it has one channel, and at least one must stay")
            elif reason is None and owner not in covered:
                bonds = propagation.ids.bonds() if bonds is None else bonds
                reason = _bound_by(next((bonds[i] for i in axis.ids.tolist() if i in bonds), None))
            if reason is not None:
                frozen[owner] = reason
    for name, module in propagation.modules.items():
        if isinstance(module, _WEIGHTED) and not {(name, "out"), (name, "along")} & propagation.axes.keys():
            frozen[name] = propagation.uncuttable.get(id(module._parameters.get("weight")), _NOT_SEEN)
    return frozen


_WEIGHTED = (_ConvNd, nn.Linear)
_NOT_SEEN = Reason(
    Kind.NOT_SEEN, "the graph does not see it: it is not called, or only inside an operation without a rule"
)


def _bound_by(bond: Reason | None) -> Reason:
    """Why none of a layer's channels can go: ``bond`` is what binds them to each other, where something told it."""
    by, place = (bond.text, bond.place) if bond else ("sizes written into the model", None)
    return Reason(Kind.BOUND, f"its channels are bound to each other by {by}, so none can go alone", place)


def _blocks(propagation: Propagation, graph: fx.Graph) -> list[Block]:
    here = set(graph.nodes)
    sums = [(node, left, right) for node, left, right, _ in propagation.sums if node in here]
    return find_blocks(graph, sums, propagation.modules)


def _mark_residual(sites: list[Site], propagation: Propagation, component: Tensor, blocks: list[Block]) -> None:
    """Note which sites lie in residual blocks."""
    sums = {node: ids for node, _, _, ids in propagation.sums}
    summed = {c for block in blocks for c in component[compact(sums[block.sum])[0].unique()].tolist() if c != FROZEN}
    for site in sites:
        out = next(part for part in site.parts if part.role == "out")
        channel = int(component[propagation.axes[out.owner, "out"].ids[out.positions[0, 0]]])
        block = next((b for b in blocks if propagation.makers.get(out.owner) in b.nodes), None)
        if channel in summed:
            site.residual = "sum"
        elif block is not None:
            site.residual, site.block, site.downsample = "inside", block.name, block.downsample
