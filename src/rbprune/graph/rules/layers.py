"""Layers with weights: they read identities and make new ones; and parameters that are used by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_leaves

from rbprune.graph.ids import FROZEN, along, spread, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.sites import Role, places_of


def _source(propagation: Propagation, node: fx.Node, x: Tensor, dim: int) -> Tensor:
    """The identities that a layer reads along one dimension of its input."""
    vector = along(x, dim)
    if vector is None:
        propagation.freeze(node, x, "reads channels that are not in one dimension", Kind.WRONG_DIMENSION)
        return torch.full((x.shape[dim],), FROZEN)
    return vector


def _make(
    propagation: Propagation, node: fx.Node, name: str, width: int, tensors: tuple[tuple[str, int], ...]
) -> Tensor:
    """The identities that a layer makes; new ones when it is met for the first time."""
    known = propagation.axes.get((name, "out"))
    made = known.ids if known else propagation.axis(name, "out", propagation.ids.fresh(width), tensors)
    propagation.makers.setdefault(name, node)
    if reason := propagation.kept(name):
        propagation.ids.freeze(made, reason)
    return made


def _applied(propagation: Propagation, node: fx.Node, name: str, dim: int, at: Tensor | None = None) -> None:
    """Count the places where a layer's weights are used: those of its output, or of ``at``."""
    _count(propagation, name, (info(node).result if at is None else at).shape, dim)


def _count(propagation: Propagation, name: str, shape: torch.Size, dim: int) -> None:
    propagation.applied[name] = propagation.applied.get(name, 0) + _places(propagation, shape, dim)


def _places(propagation: Propagation, shape: torch.Size, dim: int) -> int:
    return max(1, shape.numel() // shape[dim] // propagation.batch)


def count_inside(propagation: Propagation, node: fx.Node) -> None:
    """Count the layers of a module that cannot be followed: they compute all the same."""
    names = {id(module): name for name, module in reversed(propagation.modules.items())}
    for layer, shape in info(node).layers_inside:
        _count(propagation, names[id(layer)], shape, -1 if isinstance(layer, nn.Linear) else 1)


def linear(propagation: Propagation, node: fx.Node, module: nn.Linear, x: Tensor) -> Any:
    """y = x W^T + b over the last dimension. Where that is no channels, every channel elsewhere is treated alike."""
    name = str(node.target)
    repeated = _repeated_over(x)
    places: tuple[str, Role] = (places_of(name), "along")
    if repeated is not None and (name not in propagation.applied or places in propagation.axes):
        return _over_space(propagation, node, module, x, repeated)
    if places in propagation.axes:
        propagation.freeze(node, propagation.axes[places].ids, "is applied to something else too", Kind.NOT_SUPPORTED)
    propagation.axis(name, "in", _source(propagation, node, x, -1), ((f"{name}.weight", 1),))
    made = _make(propagation, node, name, module.out_features, ((f"{name}.weight", 0), (f"{name}.bias", 0)))
    _applied(propagation, node, name, -1)
    return spread(made, -1, info(node).result.shape)


def _repeated_over(x: Tensor) -> int | None:
    """The only dimension with channels, where it is not the last one."""
    dims = [d for d in range(x.dim()) if varies(x, d)]
    return dims[0] if len(dims) == 1 and dims[0] != x.dim() - 1 and along(x, dims[0]) is not None else None


def _over_space(propagation: Propagation, node: fx.Node, module: nn.Linear, x: Tensor, dim: int) -> Any:
    """A linear layer over positions in space, once for each channel: channels go through, and its weights stay."""
    name, vector = str(node.target), along(x, dim)
    assert vector is not None
    propagation.axis(name, "in", torch.full((module.in_features,), FROZEN), ((f"{name}.weight", 1),))
    made = _make(propagation, node, name, module.out_features, ((f"{name}.weight", 0), (f"{name}.bias", 0)))
    propagation.freeze(node, made, "makes positions in space, the same for every channel", Kind.NOT_SUPPORTED)
    propagation.axis(places_of(name), "along", vector)
    _applied(propagation, node, name, -1)
    return spread(vector, dim, info(node).result.shape)


def recurrent(propagation: Propagation, node: fx.Node, module: nn.RNNBase, x: Tensor, *state: Any) -> Any:
    """LSTM, GRU, RNN: they read channels in the last dimension; what they make they read again, so it stays."""
    name = str(node.target)
    if x.dim() != 3:
        return propagation.refuse(node, (x, state), "of an input without a batch dimension has no rule", Kind.NO_RULE)
    for leaf in tree_leaves(state):
        if isinstance(leaf, Tensor):
            propagation.freeze(node, leaf, "takes a state from it", Kind.NOT_SUPPORTED)
    tensors = tuple((f"{name}.weight_ih_l0{way}", 1) for way in ("", "_reverse")[: 1 + module.bidirectional])
    propagation.axis(name, "in", _source(propagation, node, x, -1), tensors)
    _applied(propagation, node, name, -1, x)  # once for every step
    own = [p.numel() for n, p in module.named_parameters() if "weight" in n and not n.startswith("weight_ih_l0")]
    if own:
        steps = propagation.applied[name]
        propagation.fixed[f"{name}.hidden"] = (steps * sum(own), sum(own), "linear")
    return propagation.frozen_like(info(node).result)


def convolution(propagation: Propagation, node: fx.Node, module: _ConvNd, x: Tensor, *rest: Any) -> Any:
    """Convolution of any dimension, plain, grouped, depthwise or transposed."""
    name = str(node.target)
    if x.dim() != len(module.kernel_size) + 2:
        return propagation.refuse(node, (x,), "of an input without a batch dimension has no rule", Kind.NO_RULE)
    transposed = isinstance(module, _ConvTransposeNd)
    _applied(
        propagation, node, name, 1, x if transposed else None
    )  # each input of a transposed one meets all its weights
    source = _source(propagation, node, x, 1)
    if module.groups > 1 and transposed:
        return propagation.refuse(node, (x,), "is a grouped transposed convolution", Kind.NOT_SUPPORTED)
    return spread(_convolved(propagation, node, name, module, source), 1, info(node).result.shape)


def _convolved(propagation: Propagation, node: fx.Node, name: str, module: _ConvNd, source: Tensor) -> Tensor:
    """The identities that a convolution of that name makes of those that it reads."""
    transposed = isinstance(module, _ConvTransposeNd)
    if module.groups > 1 and module.groups == module.in_channels and not transposed:
        return _depthwise(propagation, name, module, source)
    rows, columns = (1, 0) if transposed else (0, 1)
    tensors = ((f"{name}.weight", rows), (f"{name}.bias", 0))
    if module.groups == 1:
        propagation.axis(name, "in", source, ((f"{name}.weight", columns),))
        return _make(propagation, node, name, module.out_channels, tensors)
    parts = source.view(module.groups, -1)
    propagation.ids.merge(parts, parts[:1])
    propagation.axis(name, "in", source)
    propagation.axis(name, "columns", parts[0], ((f"{name}.weight", columns),))
    made = _make(propagation, node, name, module.out_channels, tensors)
    outputs = made.view(module.groups, -1)
    propagation.ids.merge(outputs, outputs[:1])
    return made


def convolutions_of_parts(
    propagation: Propagation, node: fx.Node, convolutions: Mapping[str, _ConvNd], x: Tensor, widths: list[int]
) -> Any:
    """Convolutions, by name, that each read some channels of a tensor, so many of them, and are put together again."""
    shape = info(node).result.shape
    made = []
    for (name, module), source in zip(
        convolutions.items(), _source(propagation, node, x, 1).split(widths), strict=True
    ):
        _count(propagation, name, shape, 1)
        made.append(_convolved(propagation, node, name, module, source))
    return spread(torch.cat(made), 1, shape)


def _depthwise(propagation: Propagation, name: str, module: _ConvNd, source: Tensor) -> Tensor:
    """Depthwise: one filter (or a few) for each channel, so its outputs still belong to that channel."""
    carried = source.repeat_interleave(module.out_channels // module.in_channels)
    return propagation.axis(name, "along", carried, ((f"{name}.weight", 0), (f"{name}.bias", 0)))


_FUNCTION_ARGUMENTS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
"""What F.conv takes, and F.linear the first of it, in this order or by name."""


def functional_layer(propagation: Propagation, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """F.conv and F.linear with a parameter of the model."""
    given = dict(zip(_FUNCTION_ARGUMENTS, args, strict=False)) | kwargs
    given_nodes = dict(zip(_FUNCTION_ARGUMENTS, node.args, strict=False)) | node.kwargs
    x, weight, bias, groups = given["input"], given["weight"], given.get("bias"), given.get("groups", 1)
    source_node, bias_node = given_nodes["weight"], given_nodes.get("bias")
    nodes: list[Any] = [n for n in (source_node, bias_node) if n is not None]
    name, dim = str(getattr(source_node, "target", "")), -1 if weight.dim() == 2 else 1
    refusal: tuple[str, Kind] | None = None
    if not all(isinstance(n, fx.Node) and n.op == "get_attr" for n in nodes):
        refusal = "with a computed weight has no channel rule", Kind.NO_RULE
    elif not isinstance(groups, int) or (groups != 1 and weight.dim() == 2):
        refusal = "with groups has no channel rule", Kind.NO_RULE
    elif any(_is_constant(n) for n in nodes):
        refusal = "has a weight that is no parameter of the model", Kind.NOT_A_PARAMETER
    elif weight.dim() > 2 and x.dim() != weight.dim():
        refusal = "of an input without a batch dimension has no rule", Kind.NO_RULE
    if refusal is not None:
        _fix(propagation, node, weight, info(node).result.shape, dim)
        return propagation.refuse(node, (x, weight, bias), *refusal)
    source = _source(propagation, node, x, dim)
    if groups == 1:
        propagation.axis(name, "in", source, ((name, 1),))
    else:  # their number is written: every group loses the same channels
        parts = source.view(groups, -1)
        propagation.ids.merge(parts, parts[:1], propagation.reason(node, "with groups", Kind.BOUND))
        propagation.axis(name, "in", source)
        propagation.axis(name, "columns", parts[0], ((name, 1),))
    made = _make(propagation, node, name, weight.shape[0], ((name, 0),))
    if groups != 1:
        outputs = made.view(groups, -1)
        propagation.ids.merge(outputs, outputs[:1], propagation.reason(node, "with groups", Kind.BOUND))
    if isinstance(bias, Tensor):
        propagation.ids.merge(made, bias)
    _applied(propagation, node, name, dim)
    return spread(made, dim, info(node).result.shape)


def functional_transposed(
    propagation: Propagation, node: fx.Node, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Any:
    """F.conv_transpose: counted, but not followed."""
    _fix(propagation, node, weight, x.shape, 1)
    return propagation.refuse(node, (x, weight, args, kwargs), "has no channel rule", Kind.NO_RULE)


def _fix(propagation: Propagation, node: fx.Node, weight: Tensor, shape: torch.Size, dim: int) -> None:
    """Count a layer that no cut reaches."""
    dim = dim if len(shape) > 1 and (weight.dim() == 2 or len(shape) == weight.dim()) else 0
    kind = "linear" if weight.dim() == 2 else "conv"
    propagation.fixed[node.name] = (_places(propagation, shape, dim) * weight.numel(), weight.numel(), kind)


def parameter(propagation: Propagation, node: fx.Node, value: Tensor) -> Tensor:
    """A parameter or buffer used by itself: one value per channel where it meets channels (layer scale)."""
    long = [d for d in range(value.dim()) if value.shape[d] > 1]
    name = str(node.target)
    if len(long) != 1 or _is_constant(node):
        for user in node.users:
            if not _is_weight_of(node, user):
                text = f"{name!r} is used by {propagation.describe(user)}"
                propagation.leave_tensor_whole(name, Reason(Kind.USED_ELSEWHERE, text, info(user).source_line))
        return torch.full((), FROZEN).expand(value.shape)
    known = propagation.axes.get((name, "along"))
    ids = (
        known.ids
        if known
        else propagation.axis(name, "along", propagation.ids.fresh(value.shape[long[0]]), ((name, long[0]),))
    )
    return spread(ids, long[0], value.shape)


def _is_constant(node: fx.Node) -> bool:
    """Whether it is a tensor that the forward makes itself, or finds outside of the model's parameters and buffers."""
    return str(node.target).startswith("_tensor_constant")  # fx's name for it


def _is_weight_of(node: fx.Node, user: fx.Node) -> bool:
    """Whether a parameter is used as the weight of a raw convolution or linear layer, and as nothing else."""
    name = getattr(user.target, "__name__", "")
    given = dict(zip(_FUNCTION_ARGUMENTS, user.args, strict=False)) | user.kwargs
    read_with = name in ("conv1d", "conv2d", "conv3d", "linear") and given.get("weight") is node
    return read_with and given.get("input") is not node
