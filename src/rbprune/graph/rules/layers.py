"""Layers with weights: they read identities and make new ones; and normalisation, which carries them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.graph.ids import FROZEN, along, compact, spread, varies
from rbprune.graph.propagation import Walk


def _source(walk: Walk, node: fx.Node, x: Tensor, dim: int) -> Tensor:
    """The identities that a layer reads."""
    vector = along(x, dim)
    if vector is None:
        walk.ids.freeze(x, walk.place(node, f"{walk.describe(node)} reads channels that are not in one dimension"))
        return torch.full((x.shape[dim],), FROZEN)
    return vector


def _make(walk: Walk, node: fx.Node, name: str, width: int, tensors: tuple[tuple[str, int], ...]) -> Tensor:
    """The identities that a layer makes; new ones when it is met for the first time."""
    known = walk.axes.get((name, "out"))
    made = known.ids if known else walk.axis(name, "out", walk.ids.fresh(width), tensors)
    walk.makers.setdefault(name, node)
    if walk.kept(name):
        walk.ids.freeze(made, walk.keeps(name))
    return made


def _applied(walk: Walk, node: fx.Node, name: str, dim: int, at: Tensor | None = None) -> None:
    """Count the places where a layer's weights are used: those of its output, or of ``at``."""
    _count(walk, name, (node.meta["like"] if at is None else at).shape, dim)


def _count(walk: Walk, name: str, shape: torch.Size, dim: int) -> None:
    walk.applied[name] = walk.applied.get(name, 0) + _places(walk, shape, dim)


def _places(walk: Walk, shape: torch.Size, dim: int) -> int:
    return max(1, shape.numel() // shape[dim] // walk.batch)


def count_inside(walk: Walk, node: fx.Node) -> None:
    """The layers of a module that cannot be followed compute all the same."""
    names = {id(module): name for name, module in reversed(walk.modules.items())}
    for layer, shape in node.meta.get("inside", ()):
        _count(walk, names[id(layer)], shape, -1 if isinstance(layer, nn.Linear) else 1)


def linear(walk: Walk, node: fx.Node, module: nn.Linear, x: Tensor) -> Any:
    """y = x W^T + b over the last dimension."""
    name = str(node.target)
    walk.axis(name, "in", _source(walk, node, x, -1), ((f"{name}.weight", 1),))
    made = _make(walk, node, name, module.out_features, ((f"{name}.weight", 0), (f"{name}.bias", 0)))
    _applied(walk, node, name, -1)
    return spread(made, -1, node.meta["like"].shape)


def convolution(walk: Walk, node: fx.Node, module: _ConvNd, x: Tensor, *rest: Any) -> Any:
    """Convolution of any dimension, plain, grouped, depthwise or transposed."""
    name = str(node.target)
    if x.dim() != len(module.kernel_size) + 2:
        return walk.refuse(node, (x,), f"{walk.describe(node)} of an input without a batch dimension has no rule")
    transposed = isinstance(module, _ConvTransposeNd)
    _applied(walk, node, name, 1, x if transposed else None)  # each input of a transposed one meets all its weights
    source = _source(walk, node, x, 1)
    if module.groups > 1 and module.groups == module.in_channels and not transposed:
        return spread(_depthwise(walk, name, module, source), 1, node.meta["like"].shape)
    if module.groups > 1 and transposed:
        return walk.refuse(node, (x,), f"{walk.describe(node)} is a grouped transposed convolution")
    rows, columns = (1, 0) if transposed else (0, 1)
    tensors = ((f"{name}.weight", rows), (f"{name}.bias", 0))
    if module.groups == 1:
        walk.axis(name, "in", source, ((f"{name}.weight", columns),))
        made = _make(walk, node, name, module.out_channels, tensors)
    else:
        parts = source.view(module.groups, -1)
        walk.ids.merge(parts, parts[:1])
        walk.axis(name, "in", source)
        walk.axis(name, "columns", parts[0], ((f"{name}.weight", columns),))
        made = _make(walk, node, name, module.out_channels, tensors)
        outputs = made.view(module.groups, -1)
        walk.ids.merge(outputs, outputs[:1])
    return spread(made, 1, node.meta["like"].shape)


def _depthwise(walk: Walk, name: str, module: _ConvNd, source: Tensor) -> Tensor:
    """One filter (or a few) for each channel: its outputs are the same channel still."""
    carried = source.repeat_interleave(module.out_channels // module.in_channels)
    return walk.axis(name, "along", carried, ((f"{name}.weight", 0), (f"{name}.bias", 0)))


def functional_layer(
    walk: Walk, node: fx.Node, x: Tensor, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """F.conv and F.linear with a parameter of the model."""
    source_node, bias_node = node.args[1], node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    groups = args[3] if len(args) > 3 else kwargs.get("groups", 1)
    nodes: list[Any] = [n for n in (source_node, bias_node) if n is not None]
    name, dim = str(getattr(source_node, "target", "")), -1 if weight.dim() == 2 else 1
    reason = None
    if not all(isinstance(n, fx.Node) and n.op == "get_attr" for n in nodes):
        reason = "with a computed weight has no channel rule"
    elif groups != 1:
        reason = "with groups has no channel rule"
    elif any(_is_constant(n) for n in nodes):
        reason = "has a weight that is no parameter of the model"
    elif weight.dim() > 2 and x.dim() != weight.dim():
        reason = "of an input without a batch dimension has no rule"
    if reason is not None:
        _fix(walk, node, weight, node.meta["like"].shape, dim)
        return walk.refuse(node, (x, weight, bias), f"{walk.describe(node)} {reason}")
    walk.axis(name, "in", _source(walk, node, x, dim), ((name, 1),))
    made = _make(walk, node, name, weight.shape[0], ((name, 0),))
    if isinstance(bias, Tensor):
        walk.ids.merge(made, bias)
    _applied(walk, node, name, dim)
    return spread(made, dim, node.meta["like"].shape)


def functional_transposed(walk: Walk, node: fx.Node, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Any:
    """F.conv_transpose: counted, but not followed."""
    _fix(walk, node, weight, x.shape, 1)
    return walk.refuse(node, (x, weight, args, kwargs), f"{walk.describe(node)} has no channel rule")


def _fix(walk: Walk, node: fx.Node, weight: Tensor, shape: torch.Size, dim: int) -> None:
    """Count a layer that no cut reaches."""
    dim = dim if len(shape) > 1 and (weight.dim() == 2 or len(shape) == weight.dim()) else 0
    kind = "linear" if weight.dim() == 2 else "conv"
    walk.fixed[node.name] = (_places(walk, shape, dim) * weight.numel(), weight.numel(), kind)


def batch_norm(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """Batch and instance normalisation: every channel on its own."""
    name = str(node.target)
    vector = along(x, 1)
    if vector is None:
        return walk.refuse(node, (x,), f"{walk.describe(node)} normalises channels that are not in dimension 1")
    names = ("weight", "bias", "running_mean", "running_var")
    walk.axis(name, "along", vector, tuple((f"{name}.{n}", 0) for n in names))
    return x


def functional_batch_norm(
    walk: Walk, node: fx.Node, x: Tensor, *statistics: Any, weight: Any = None, bias: Any = None, **kwargs: Any
) -> Any:
    """F.batch_norm: statistics and parameters, where they are the model's, follow the channels."""
    named = (kwargs.get("running_mean"), kwargs.get("running_var"), weight, bias)
    vector = along(x, 1)
    if vector is None:
        return walk.refuse(node, (x,), f"{walk.describe(node)} normalises channels that are not in dimension 1")
    for tensor in (*statistics, *named):
        if isinstance(tensor, Tensor):
            if bool((compact(tensor)[0] == FROZEN).any()):
                walk.ids.freeze(x, walk.place(node, f"{walk.describe(node)} with parameters that are computed"))
            walk.ids.merge(vector, tensor)
    return x


def group_norm(walk: Walk, node: fx.Node, module: nn.GroupNorm, x: Tensor) -> Any:
    """A group's channels share statistics, so they go together or not at all."""
    name = str(node.target)
    vector = along(x, 1)
    if vector is None or module.num_groups == 1:
        return walk.refuse(node, (x,), f"{walk.describe(node)} normalises over channels: one less changes the others")
    groups = vector.view(module.num_groups, -1)
    walk.ids.merge(groups, groups[:, :1])
    walk.axis(name, "along", vector, ((f"{name}.weight", 0), (f"{name}.bias", 0)))
    return x


def layer_norm(walk: Walk, node: fx.Node, x: Tensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    """Exact only where it does not run over channels."""
    if any(varies(x, -1 - d) for d in range(len(tuple(normalized_shape)))):
        return walk.refuse(node, (x,), f"{walk.describe(node)} normalises over channels: one less changes the others")
    return x


def layer_norm_module(walk: Walk, node: fx.Node, module: nn.LayerNorm, x: Tensor) -> Any:
    """The same as a module."""
    return layer_norm(walk, node, x, module.normalized_shape)


def parameter(walk: Walk, node: fx.Node, value: Tensor) -> Tensor:
    """A parameter or buffer used by itself: one value per channel where it meets channels (layer scale)."""
    long = [d for d in range(value.dim()) if value.shape[d] > 1]
    name = str(node.target)
    if len(long) != 1 or _is_constant(node):
        for user in node.users:
            if not _is_weight_of(node, user):
                walk.bind_value(name, walk.place(user, f"{name!r} is used by {walk.describe(user)}"))
        return torch.full((), FROZEN).expand(value.shape)
    known = walk.axes.get((name, "along"))
    ids = known.ids if known else walk.axis(name, "along", walk.ids.fresh(value.shape[long[0]]), ((name, long[0]),))
    return spread(ids, long[0], value.shape)


def _is_constant(node: fx.Node) -> bool:
    """Whether it is a tensor that the forward makes itself, or finds outside of the model's parameters and buffers."""
    return str(node.target).startswith("_tensor_constant")  # fx's name for it


def _is_weight_of(node: fx.Node, user: fx.Node) -> bool:
    """Whether a parameter is used as the weight of a raw convolution or linear layer, and as nothing else."""
    name = getattr(user.target, "__name__", "")
    weight = user.args[1] if len(user.args) > 1 else None
    return name in ("conv1d", "conv2d", "conv3d", "linear") and weight is node and user.args[0] is not node
