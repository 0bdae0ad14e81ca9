"""Operations that take a tensor apart or put tensors together: identities go where the values go.

A number of parts that is written into the model does not change when channels go, so the parts lose their channels
together; channels that are picked by their position stay.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from rbprune.graph.ids import FROZEN, along, spread, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules import attribute_sizes, size_dependence
from rbprune.graph.rules.elementwise import freeze_partners
from rbprune.graph.rules.shape import is_size
from rbprune.graph.size_attributes import Counted


def chunk(propagation: Propagation, node: fx.Node, x: Tensor, chunks: int, dim: int = 0) -> Any:
    """chunk makes a written number of equal parts, which lose their channels together."""
    dim = dim % x.dim()
    if varies(x, dim):
        if x.shape[dim] % chunks:
            return propagation.refuse(node, (x,), f"makes unequal parts of {x.shape[dim]} channels", Kind.NOT_SUPPORTED)
        bind_equal_parts(propagation, x, dim, chunks, x.shape[dim] // chunks)
    return x.chunk(chunks, dim)


def glu(propagation: Propagation, node: fx.Node, x: Tensor, dim: int = -1) -> Any:
    """In a gated linear unit one half gates the other, so both lose their channels together."""
    halves = chunk(propagation, node, x, 2, dim)
    return halves[0]


def channel_shuffle(propagation: Propagation, node: fx.Node, x: Tensor, groups: int) -> Any:
    """The channel shuffle as one operation: the groups lose their channels together."""
    bind_equal_parts(propagation, x, 1, groups, x.shape[1] // groups)
    return x.unflatten(1, (groups, x.shape[1] // groups)).transpose(1, 2).flatten(1, 2)


def split(propagation: Propagation, node: fx.Node, x: Tensor, size: Any, dim: int = 0) -> Any:
    """split makes parts of a size: one that follows the channels keeps their number, a written one picks positions."""
    dim = dim % x.dim()
    counted = size_dependence.counted_by_arguments(propagation, node)
    held = attribute_sizes.counted_by(propagation, node, size) if not counted else None
    if held is not None and _follows(propagation, node, x, dim, size, held):
        return x.split(size, dim)
    if varies(x, dim):
        given = node.args[1] if len(node.args) > 1 else next(iter(node.kwargs.values()))
        if (
            counted
            and is_size(given)
            and x.shape[dim] % size == 0
            and size_dependence.size_follows(propagation, counted, x)
        ):
            bind_equal_parts(propagation, x, dim, x.shape[dim] // size, size)
            return x.split(size, dim)
        size_dependence.freeze_counted(propagation, node, counted)
        return propagation.refuse(node, (x,), "selects channels by position", Kind.SELECTED_BY_POSITION)
    size_dependence.freeze_counted(propagation, node, counted)
    return x.split(size, dim)


def _follows(propagation: Propagation, node: fx.Node, x: Tensor, dim: int, size: Any, held: list[Counted]) -> bool:
    """Let sizes that are held in attributes follow the channels of their parts, or bind them where there are none."""
    vector = along(x, dim) if varies(x, dim) else None
    follows = vector is not None and (not isinstance(size, int) or len(vector) % size == 0)
    sizes = [size] if isinstance(size, int) else list(size)
    parts = [torch.full((width,), FROZEN) for width in sizes]
    if follows and vector is not None:
        parts = list(vector.split(size))
        if isinstance(size, int):
            bind_equal_parts(propagation, x, dim, len(parts), size)
    for counted, part in zip(held, parts, strict=False):  # of equal parts the first will do
        attribute_sizes.follow(propagation, node, counted, part)
    return follows


def bind_equal_parts(propagation: Propagation, ids: Tensor, dim: int, groups: int, size: int) -> None:
    """Make the ``groups`` equal parts along ``dim`` lose their channels together."""
    parts = ids.unflatten(dim, (groups, size))
    propagation.ids.merge(parts, parts.narrow(dim, 0, 1))


def unbind(propagation: Propagation, node: fx.Node, x: Tensor, dim: int = 0) -> Any:
    """One tensor for each position of a dimension that holds no channels."""
    if varies(x, dim):
        return propagation.refuse(node, (x,), "selects channels by position", Kind.SELECTED_BY_POSITION)
    return x.unbind(dim)


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


def concatenate(propagation: Propagation, node: fx.Node, tensors: Any, dim: int = 0, **kwargs: Any) -> Any:
    """Concatenation: the identities one after another; along another dimension all must lose the same channels."""
    dim = kwargs.get("axis", dim) % tensors[0].dim()
    vectors = [along(t, dim) for t in tensors]
    if all(v is not None for v in vectors):
        return spread(torch.cat([v for v in vectors if v is not None]), dim, info(node).result.shape)
    parts = [t.narrow(dim, 0, 1) for t in tensors]
    _bind_all(propagation, node, parts)
    if any(varies(t, dim) for t in tensors):
        return torch.cat(list(tensors), dim)
    return parts[0].expand(info(node).result.shape)  # bound, they are all the same


def stack(propagation: Propagation, node: fx.Node, tensors: Any, dim: int = 0) -> Any:
    """Tensors side by side in a new dimension: they must have the same shape, so they lose the same channels."""
    _bind_all(propagation, node, list(tensors))
    return tensors[0].unsqueeze(dim).expand(info(node).result.shape)


def _bind_all(propagation: Propagation, node: fx.Node, tensors: list[Tensor]) -> None:
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
