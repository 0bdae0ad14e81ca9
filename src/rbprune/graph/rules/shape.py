"""Operations that give a tensor another shape: they act on identities as on data.

Sizes that are written into the model as numbers do not change when channels go, so whatever they bind is bound here
too: the parts of a fixed number of groups lose their channels together, a fixed width is frozen.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from rbprune.graph.ids import FROZEN, along, spread, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules import size_dependence
from rbprune.graph.rules.elementwise import call, freeze_partners


def rearrange(propagation: Propagation, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """permute, transpose, unsqueeze: operations that move values and have no sizes in their arguments."""
    return call(node, args, kwargs)


def flatten(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """flatten of channels and space: each channel owns as many positions of the result as it had places."""
    return x.flatten(*args, **kwargs)


def reshape(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """view and reshape. A written size groups channels; a size taken from a tensor, or -1, follows them."""
    written = list(node.args[1]) if isinstance(node.args[1], tuple | list) else list(node.args[1:])
    result = x.reshape(*args, **kwargs)
    sizes = _written_sizes(propagation, written, result.dim())
    if sizes is None:
        size_dependence.freeze_counted(propagation, node, size_dependence.counted_by_arguments(propagation, node))
        return propagation.refuse(node, (x,), "takes sizes that are computed as a whole", Kind.NOT_SUPPORTED)
    return _reshaped(propagation, node, x, result, sizes)


def reshape_as(propagation: Propagation, node: fx.Node, x: Tensor, other: Tensor) -> Any:
    """view_as and reshape_as: reshape to the shape of another tensor."""
    counts = size_dependence.counted_by_shape(other)
    return _reshaped(propagation, node, x, x.reshape(other.shape), [WrittenSize(c, True, True) for c in counts])


@dataclass(frozen=True)
class WrittenSize:
    """A size as it stands in the model: the channels that it counts, and whether it is nothing but the size of a tensor
    (``is_whole``), or such a size divided or multiplied (``is_size``). ``is_rest`` is the size that -1 stands for."""

    counted: size_dependence.CountedChannels
    is_size: bool
    is_whole: bool
    is_rest: bool = False


def _written_sizes(propagation: Propagation, written: list[Any], count: int) -> list[WrittenSize] | None:
    """Sizes as they stand in the model, each by itself or all in one shape; None where they are something else."""
    if len(written) == count and not any(_is_shape(size) for size in written):
        return [
            WrittenSize(
                size_dependence.counted_by(propagation, size),
                is_size(size),
                _is_whole(size),
                isinstance(size, int) and size == -1,
            )
            for size in written
        ]
    counts = propagation.counted.get(written[0]) if len(written) == 1 and _is_shape(written[0]) else None
    if not isinstance(counts, tuple) or len(counts) != count:
        return None
    return [WrittenSize(each, True, True) for each in counts]


def _is_shape(size: Any) -> bool:
    """Whether an argument is not one size, but several in one value."""
    return isinstance(size, fx.Node) and isinstance(info(size).result, tuple)


def unflatten(propagation: Propagation, node: fx.Node, x: Tensor, dim: int, sizes: Any) -> Any:
    """unflatten makes several dimensions of one; the sizes of all other dimensions follow what they hold."""
    written = node.args[2] if len(node.args) > 2 else node.kwargs.get("sizes", node.kwargs.get("unflattened_size"))
    return _unflattened(propagation, node, x, dim, sizes, list(written))  # type: ignore[arg-type]


def unflatten_module(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """nn.Unflatten, whose sizes are numbers written into the model."""
    sizes: Any = module.unflattened_size
    return _unflattened(propagation, node, x, module.dim, sizes, list(sizes))  # type: ignore[arg-type]


def _unflattened(propagation: Propagation, node: fx.Node, x: Tensor, dim: int, sizes: Any, written: list[Any]) -> Any:
    """``written`` are the sizes of the new dimensions as they stand in the model."""
    before = dim % x.dim()
    after = x.dim() - before - 1
    result = x.unflatten(dim, sizes)
    found = _written_sizes(propagation, [-1] * before + written + [-1] * after, result.dim())
    assert found is not None
    return _reshaped(propagation, node, x, result, found)


def _reshaped(propagation: Propagation, node: fx.Node, x: Tensor, result: Tensor, written: list[WrittenSize]) -> Any:
    """``written`` are the sizes of the result as they stand in the model."""
    moving = [d for d in range(result.dim()) if varies(result, d)]
    free = []
    for d, size in enumerate(written):
        vector = along(result, d) if size.is_whole else None
        following = (
            d in moving
            and bool(size.counted)
            and size.is_size
            and size_dependence.size_follows(propagation, size.counted, x, vector)
        )
        if size.counted and not following:
            size_dependence.freeze_counted(propagation, node, size.counted)
        if following or (d in moving and size.is_rest):
            free.append(d)
        elif d in moving:
            propagation.ids.merge(result, result.narrow(d, 0, 1))
    if not moving or len(free) == 1:
        return result
    return propagation.refuse(node, (x,), f"fixes the number of channels: {tuple(result.shape)}", Kind.FIXED_NUMBER)


def is_size(node: Any) -> bool:
    """Whether a number is the size of a tensor, or such a size divided by a written number or multiplied."""
    if not isinstance(node, fx.Node):
        return False
    if node.op == "call_method" and node.target == "size":
        return True
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] == "shape"
    if node.target is operator.floordiv and isinstance(node.args[1], fx.Node):
        return False
    if node.target is operator.mul and any(a.target is operator.floordiv for a in node.all_input_nodes):
        return False  # c // 4 * 2 is no fixed share of c
    if node.target in (operator.floordiv, operator.mul, operator.getitem):
        return all(is_size(a) for a in node.all_input_nodes)
    return False


def _is_whole(node: Any) -> bool:
    """Whether a number is the size of a tensor as it is."""
    return is_size(node) and node.target not in (operator.floordiv, operator.mul)


def pixel_shuffle(propagation: Propagation, node: fx.Node, x: Tensor, factor: int) -> Any:
    """r^2 channels become one channel, spread over space, so they lose their places together."""
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    blocks = vector.view(-1, factor**2)
    propagation.ids.merge(blocks, blocks[:, :1])
    return spread(blocks[:, 0], 1, info(node).result.shape)


def pixel_unshuffle(propagation: Propagation, node: fx.Node, x: Tensor, factor: int) -> Any:
    """One channel becomes r^2 channels, which go when it goes."""
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    return spread(vector.repeat_interleave(factor**2), 1, info(node).result.shape)


def squeeze(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """squeeze of dimensions that are named: without, the channels would go too when only one is left."""
    if not args and not kwargs and any(varies(x, d) for d in range(x.dim())):
        what = "would drop the dimension of a single channel: name the dimension"
        return propagation.refuse(node, (x,), what, Kind.NOT_SUPPORTED)
    named = args or tuple(kwargs.values())
    dims = [d for given in named for d in (given if isinstance(given, tuple | list) else (given,))]
    if any(varies(x, d) for d in dims):
        return propagation.refuse(node, (x,), "would drop the dimension of a single channel", Kind.NOT_SUPPORTED)
    return x.squeeze(*args, **kwargs)


def expand(propagation: Propagation, node: fx.Node, x: Tensor, *sizes: Any) -> Any:
    """expand along dimensions of size one; the result follows the channels whose number it takes."""
    shape = info(node).result.shape
    given = list(node.args[1]) if isinstance(node.args[1], tuple | list) else list(node.args[1:])
    other = torch.full((), FROZEN).expand(shape)
    written = _written_sizes(propagation, given, len(shape))
    if written is None:  # sizes that are computed as a whole
        size_dependence.freeze_counted(propagation, node, size_dependence.counted_by_arguments(propagation, node))
        return _expanded(propagation, node, x, other, list(range(len(shape))))
    following: int | None = None
    fixed = []
    for d, size in enumerate(written):
        counted = size.counted
        if following is None and size.is_whole and len(counted) == 1 and len(counted[0]) == shape[d]:
            following, other = d, spread(counted[0], d, shape)
        elif not size.is_rest:
            fixed.append(d)
            size_dependence.freeze_counted(propagation, node, counted)
    return _expanded(propagation, node, x, other, fixed)


def expand_as(propagation: Propagation, node: fx.Node, x: Tensor, other: Tensor) -> Any:
    """expand_as: expand to the shape of another tensor, and follow the channels of that."""
    return _expanded(propagation, node, x, other, [d for d in range(other.dim()) if not varies(other, d)])


def _expanded(propagation: Propagation, node: fx.Node, x: Tensor, other: Tensor, fixed: list[int]) -> Any:
    """One value that is spread over channels stays, and its copies are the channels it is spread over.

    ``fixed`` are the dimensions whose size does not change when channels of ``x`` go.
    """
    x = x.view([1] * (other.dim() - x.dim()) + list(x.shape))
    if any(varies(x, d) for d in fixed):
        return propagation.refuse(node, (x,), f"fixes the number of channels: {tuple(other.shape)}", Kind.FIXED_NUMBER)
    moving = [d for d in range(other.dim()) if varies(other, d)]
    if all(x.shape[d] == other.shape[d] for d in moving):
        if moving:
            propagation.ids.merge(x, other)
            freeze_partners(propagation, node, x, other)
        return x.expand(other.shape)
    if any(varies(x, d) for d in range(x.dim())):
        return propagation.refuse(node, (x, other), "mixes channels", Kind.MIXES_CHANNELS)
    propagation.freeze(node, x, "spreads it over channels", Kind.MEETS_FIXED)
    return other
