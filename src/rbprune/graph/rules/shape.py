"""Operations that move values around: they act on identities as on data.

Sizes that are written into the model as numbers do not change when channels go, so whatever they bind is bound here
too: the parts of a fixed number of groups lose their channels together, a fixed width is frozen.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from rbprune.graph.ids import FROZEN, along, spread, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules import size_dependence
from rbprune.graph.rules.elementwise import call, freeze_partners


def same(propagation: Propagation, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """A shape operation without sizes in its arguments."""
    return call(node, args, kwargs)


def flatten(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """flatten of channels and space."""
    return x.flatten(*args, **kwargs)


def reshape(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """view and reshape. A written size groups channels; a size taken from a tensor, or -1, follows them."""
    written = list(node.args[1]) if isinstance(node.args[1], tuple | list) else list(node.args[1:])
    return _reshaped(propagation, node, x, x.reshape(*args, **kwargs), written)


def unflatten(propagation: Propagation, node: fx.Node, x: Tensor, dim: int, sizes: Any) -> Any:
    """One dimension into several: the others follow what they hold."""
    written = node.args[2] if len(node.args) > 2 else node.kwargs.get("sizes", node.kwargs.get("unflattened_size"))
    return _unflattened(propagation, node, x, dim, sizes, list(written))  # type: ignore[arg-type]


def unflatten_module(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """The same as a module."""
    sizes: Any = module.unflattened_size
    return _unflattened(propagation, node, x, module.dim, sizes, list(sizes))  # type: ignore[arg-type]


def _unflattened(propagation: Propagation, node: fx.Node, x: Tensor, dim: int, sizes: Any, written: list[Any]) -> Any:
    before = dim % x.dim()
    after = x.dim() - before - 1
    return _reshaped(propagation, node, x, x.unflatten(dim, sizes), [-1] * before + written + [-1] * after)


def _reshaped(propagation: Propagation, node: fx.Node, x: Tensor, result: Tensor, written: list[Any]) -> Any:
    """``written`` are the sizes of the result as they stand in the model."""
    moving = [d for d in range(result.dim()) if varies(result, d)]
    free = []
    for d, size in enumerate(written):
        used = size_dependence.of(propagation, size)
        vector = along(result, d) if _is_whole(size) else None
        following = (
            d in moving and bool(used) and _is_size(size) and size_dependence.follows(propagation, used, x, vector)
        )
        if used and not following:
            size_dependence.freeze(propagation, node, used)
        if following or (d in moving and isinstance(size, int) and size == -1):
            free.append(d)
        elif d in moving:
            propagation.ids.merge(result, result.narrow(d, 0, 1))
    if not moving or len(free) == 1:
        return result
    return propagation.refuse(node, (x,), f"fixes the number of channels: {tuple(result.shape)}", Kind.FIXED_NUMBER)


def _is_size(node: Any) -> bool:
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
        return all(_is_size(a) for a in node.all_input_nodes)
    return False


def _is_whole(node: Any) -> bool:
    """Whether a number is the size of a tensor as it is."""
    return _is_size(node) and node.target not in (operator.floordiv, operator.mul)


def unflatten_groups(propagation: Propagation, ids: Tensor, dim: int, groups: int, size: int) -> None:
    """Make the ``groups`` equal parts along ``dim`` lose their channels together."""
    parts = ids.unflatten(dim, (groups, size))
    propagation.ids.merge(parts, parts.narrow(dim, 0, 1))


def chunk(propagation: Propagation, node: fx.Node, x: Tensor, chunks: int, dim: int = 0) -> Any:
    """A written number of equal parts."""
    dim = dim % x.dim()
    if varies(x, dim):
        if x.shape[dim] % chunks:
            return propagation.refuse(node, (x,), f"makes unequal parts of {x.shape[dim]} channels", Kind.NOT_SUPPORTED)
        unflatten_groups(propagation, x, dim, chunks, x.shape[dim] // chunks)
    return x.chunk(chunks, dim)


def glu(propagation: Propagation, node: fx.Node, x: Tensor, dim: int = -1) -> Any:
    """One half gates the other, so both lose their channels together."""
    halves = chunk(propagation, node, x, 2, dim)
    return halves[0]


def split(propagation: Propagation, node: fx.Node, x: Tensor, size: Any, dim: int = 0) -> Any:
    """Parts of a written size, or of a size that follows the channels."""
    dim = dim % x.dim()
    used = size_dependence.used(propagation, node)
    if varies(x, dim):
        given = node.args[1] if len(node.args) > 1 else next(iter(node.kwargs.values()))
        if used and _is_size(given) and x.shape[dim] % size == 0 and size_dependence.follows(propagation, used, x):
            unflatten_groups(propagation, x, dim, x.shape[dim] // size, size)
            return x.split(size, dim)
        size_dependence.freeze(propagation, node, used)
        return propagation.refuse(node, (x,), "selects channels by position", Kind.SELECTED_BY_POSITION)
    size_dependence.freeze(propagation, node, used)
    return x.split(size, dim)


def getitem(propagation: Propagation, node: fx.Node, x: Any, index: Any) -> Any:
    """Indexing: of a tuple, or of dimensions along which the identity does not change."""
    if not isinstance(x, Tensor):
        return x[index]
    parts = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [part for part in parts if not isinstance(part, Tensor)]:
        where = parts.index(Ellipsis)
        missing = x.dim() - sum(part is not None for part in parts) + 1
        parts = (*parts[:where], *[slice(None)] * missing, *parts[where + 1 :])
    d = 0
    for part in parts:
        if part is None:
            continue
        if (
            not isinstance(part, slice | int)
            or isinstance(part, bool)
            or (varies(x, d) and not _takes_all(part, x.shape[d]))
        ):
            return propagation.refuse(node, (x,), "selects channels by position", Kind.SELECTED_BY_POSITION)
        d += 1
    return x[index]


def _takes_all(part: Any, size: int) -> bool:
    """Whether an index takes everything there is, now and when there is less.

    >>> _takes_all(slice(None, 8), 8), _takes_all(slice(1, 8), 8), _takes_all(slice(None, 7), 8), _takes_all(0, 1)
    (True, False, False, False)
    """
    if not isinstance(part, slice) or part.step not in (None, 1) or part.start not in (None, 0):
        return False
    return part.stop is None or part.stop >= size


def setitem(propagation: Propagation, node: fx.Node, x: Tensor, index: Any, value: Any) -> None:
    """Writing a number into places that are the same in every channel; anything else stays."""
    if isinstance(value, Tensor):
        propagation.refuse(node, (x, value), "writes into channels", Kind.WRITES_INTO)
    else:
        getitem(propagation, node, x, index)


def unbind(propagation: Propagation, node: fx.Node, x: Tensor, dim: int = 0) -> Any:
    """One tensor for each position of a dimension that holds no channels."""
    if varies(x, dim):
        return propagation.refuse(node, (x,), "selects channels by position", Kind.SELECTED_BY_POSITION)
    return x.unbind(dim)


def concatenate(propagation: Propagation, node: fx.Node, tensors: Any, dim: int = 0, **kwargs: Any) -> Any:
    """Concatenation: the identities one after another; along another dimension all must lose the same channels."""
    dim = kwargs.get("axis", dim) % tensors[0].dim()
    vectors = [along(t, dim) for t in tensors]
    if all(v is not None for v in vectors):
        return spread(torch.cat([v for v in vectors if v is not None]), dim, info(node).result.shape)
    parts = [t.narrow(dim, 0, 1) for t in tensors]
    _bind(propagation, node, parts)
    if any(varies(t, dim) for t in tensors):
        return torch.cat(list(tensors), dim)
    return parts[0].expand(info(node).result.shape)  # bound, they are all the same


def stack(propagation: Propagation, node: fx.Node, tensors: Any, dim: int = 0) -> Any:
    """Tensors side by side in a new dimension: they must have the same shape, so they lose the same channels."""
    _bind(propagation, node, list(tensors))
    return tensors[0].unsqueeze(dim).expand(info(node).result.shape)


def _bind(propagation: Propagation, node: fx.Node, tensors: list[Tensor]) -> None:
    """Make tensors lose the same channels, place by place."""
    first, *others = tensors
    for other in others:
        propagation.ids.merge(first, other)
        freeze_partners(propagation, node, first, other)


def pad(propagation: Propagation, node: fx.Node, x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Padding; padded channels are constants and may not be removed."""
    vector = along(x, 1)
    if vector is None or not all(isinstance(a, int) for a in pad):
        return propagation.refuse(node, (x,), "pads by amounts that are not constant", Kind.NOT_SUPPORTED)
    channel = 2 * (x.dim() - 2)
    before, after = pad[channel : channel + 2] if len(pad) >= channel + 2 else (0, 0)
    if (before or after) and (mode != "constant" or before < 0 or after < 0):
        return propagation.refuse(node, (x,), f"pads channels by {mode}", Kind.NOT_SUPPORTED)
    return spread(F.pad(vector, (before, after), value=FROZEN), 1, info(node).result.shape)


def pixel_shuffle(propagation: Propagation, node: fx.Node, x: Tensor, factor: int) -> Any:
    """r^2 channels become one, spread over space."""
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    blocks = vector.view(-1, factor**2)
    propagation.ids.merge(blocks, blocks[:, :1])
    return spread(blocks[:, 0], 1, info(node).result.shape)


def pixel_unshuffle(propagation: Propagation, node: fx.Node, x: Tensor, factor: int) -> Any:
    """One channel becomes r^2."""
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    return spread(vector.repeat_interleave(factor**2), 1, info(node).result.shape)


def channel_shuffle(propagation: Propagation, node: fx.Node, x: Tensor, groups: int) -> Any:
    """The channel shuffle as one operation."""
    unflatten_groups(propagation, x, 1, groups, x.shape[1] // groups)
    return x.unflatten(1, (groups, x.shape[1] // groups)).transpose(1, 2).flatten(1, 2)


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
    if len(given) != len(shape):  # a whole shape in one argument
        size_dependence.freeze(propagation, node, size_dependence.used(propagation, node))
        return _expanded(propagation, node, x, other, list(range(len(shape))))
    following: int | None = None
    fixed = []
    for d, size in enumerate(given):
        used = size_dependence.of(propagation, size)
        if following is None and _is_whole(size) and len(used) == 1 and len(used[0]) == shape[d]:
            following, other = d, spread(used[0], d, shape)
        elif size != -1:
            fixed.append(d)
            size_dependence.freeze(propagation, node, used)
    return _expanded(propagation, node, x, other, fixed)


def expand_as(propagation: Propagation, node: fx.Node, x: Tensor, other: Tensor) -> Any:
    """expand to the shape of another tensor."""
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
