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

from rbprune.graph.ids import FROZEN, along, compact, spread, varies
from rbprune.graph.rules.elementwise import call
from rbprune.graph.walk import Walk


def same(walk: Walk, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """A shape operation without sizes in its arguments."""
    return call(node, args, kwargs)


def flatten(walk: Walk, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """flatten of channels and space."""
    return x.flatten(*args, **kwargs)


def flatten_module(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """The same as a module."""
    return module(x)


def reshape(walk: Walk, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """view and reshape. A written size groups channels; a size taken from a tensor, or -1, follows them."""
    result = x.reshape(*args, **kwargs)
    written = list(node.args[1]) if isinstance(node.args[1], tuple | list) else list(node.args[1:])
    moving = [d for d in range(result.dim()) if varies(result, d)]
    free = []
    for d in moving:
        size = written[d]
        if isinstance(size, fx.Node) and not _is_size(size):
            return walk.refuse(
                node, (x,), f"{walk.describe(node)} takes a size that is computed in a way without a rule"
            )
        if (isinstance(size, fx.Node) and _follows(walk, size, x, along(result, d))) or size == -1:
            free.append(d)
        else:
            walk.ids.merge(result, result.narrow(d, 0, 1))
    if not moving or len(free) == 1:
        return result
    return walk.refuse(node, (x,), f"{walk.describe(node)} fixes the number of channels: {tuple(result.shape)}")


def _follows(walk: Walk, size: fx.Node, x: Tensor, vector: Tensor | None) -> bool:
    """Whether a size that is taken from a tensor changes as the channels of ``x`` do.

    It does where that tensor has the same channels. The size of other channels is bound to these, index by index;
    anything else is a fixed number.
    """
    measured = [(walk.env.get(source), dim) for source, dim in _measured(size)]
    moving = [(t, dim) for t, dim in measured if isinstance(t, Tensor) and dim is not None and varies(t, dim)]
    if len(moving) != 1 or any(not isinstance(t, Tensor) or dim is None for t, dim in measured):
        return False
    ids, dim = moving[0]
    if torch.equal(compact(ids)[0].unique(), compact(x)[0].unique()):
        return True
    other = along(ids, dim)
    if size.target in (operator.floordiv, operator.mul) or other is None or vector is None or len(other) != len(vector):
        return False
    walk.ids.merge(other, vector)
    return True


def _measured(size: Any) -> list[tuple[fx.Node, int | None]]:
    """The tensors whose sizes make up a number, each with the dimension."""
    if size.op == "call_method":
        return [(size.args[0], size.args[1] if len(size.args) > 1 else size.kwargs.get("dim"))]
    if size.target is getattr:
        return [(size.args[0], None)]
    inner = [pair for source in size.all_input_nodes for pair in _measured(source)]
    if size.target is operator.getitem:
        return [(source, size.args[1] if isinstance(size.args[1], int) else None) for source, _ in inner]
    return inner


def _is_size(node: Any) -> bool:
    """Whether a number is the size of a tensor, or such a size divided or multiplied by a written number."""
    if node.op == "call_method" and node.target == "size":
        return True
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] == "shape"
    if node.target is operator.floordiv and isinstance(node.args[1], fx.Node):
        return False
    if node.target in (operator.floordiv, operator.mul, operator.getitem):
        return all(_is_size(a) for a in node.all_input_nodes)
    return False


def unflatten_groups(walk: Walk, ids: Tensor, dim: int, groups: int, size: int) -> None:
    """Make the ``groups`` equal parts along ``dim`` lose their channels together."""
    parts = ids.unflatten(dim, (groups, size))
    walk.ids.merge(parts, parts.narrow(dim, 0, 1))


def chunk(walk: Walk, node: fx.Node, x: Tensor, chunks: int, dim: int = 0) -> Any:
    """A written number of equal parts."""
    dim = dim % x.dim()
    if varies(x, dim):
        if x.shape[dim] % chunks:
            return walk.refuse(node, (x,), f"{walk.describe(node)} makes unequal parts of {x.shape[dim]} channels")
        unflatten_groups(walk, x, dim, chunks, x.shape[dim] // chunks)
    return x.chunk(chunks, dim)


def split(walk: Walk, node: fx.Node, x: Tensor, size: Any, dim: int = 0) -> Any:
    """Parts of a written size, or of a size that follows the channels."""
    dim = dim % x.dim()
    if varies(x, dim):
        given = node.args[1] if len(node.args) > 1 else next(iter(node.kwargs.values()))
        follows = isinstance(given, fx.Node) and _is_size(given) and _follows(walk, given, x, None)
        if not (follows and x.shape[dim] % size == 0):
            return walk.refuse(node, (x,), f"{walk.describe(node)} selects channels by position")
        unflatten_groups(walk, x, dim, x.shape[dim] // size, size)
    return x.split(size, dim)


def getitem(walk: Walk, node: fx.Node, x: Any, index: Any) -> Any:
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
        if not isinstance(part, slice | int) or (part != slice(None) and varies(x, d)):
            return walk.refuse(node, (x,), f"{walk.describe(node)} selects channels by position")
        d += 1
    return x[index]


def setitem(walk: Walk, node: fx.Node, x: Tensor, index: Any, value: Any) -> None:
    """Writing a number into places that are the same in every channel; anything else stays."""
    if isinstance(value, Tensor):
        walk.refuse(node, (x, value), f"{walk.describe(node)} writes into channels")
    else:
        getitem(walk, node, x, index)


def concatenate(walk: Walk, node: fx.Node, tensors: Any, dim: int = 0, **kwargs: Any) -> Any:
    """Concatenation: the identities one after another."""
    dim = kwargs.get("axis", dim) % tensors[0].dim()
    vectors = [along(t, dim) for t in tensors]
    if all(v is not None for v in vectors):
        return spread(torch.cat([v for v in vectors if v is not None]), dim, node.meta["like"].shape)
    return torch.cat(list(tensors), dim)


def pad(walk: Walk, node: fx.Node, x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Padding; padded channels are constants and may not be removed."""
    vector = along(x, 1)
    if vector is None or not all(isinstance(a, int) for a in pad):
        return walk.refuse(node, (x,), f"{walk.describe(node)} pads by amounts that are not constant")
    channel = 2 * (x.dim() - 2)
    before, after = pad[channel : channel + 2] if len(pad) >= channel + 2 else (0, 0)
    if (before or after) and (mode != "constant" or before < 0 or after < 0):
        return walk.refuse(node, (x,), f"{walk.describe(node)} pads channels by {mode}")
    return spread(F.pad(vector, (before, after), value=FROZEN), 1, node.meta["like"].shape)


def pixel_shuffle(walk: Walk, node: fx.Node, x: Tensor, factor: int) -> Any:
    """r^2 channels become one, spread over space."""
    vector = along(x, 1)
    if vector is None:
        return walk.refuse(node, (x,), f"{walk.describe(node)} does not find the channels in dimension 1")
    blocks = vector.view(-1, factor**2)
    walk.ids.merge(blocks, blocks[:, :1])
    return spread(blocks[:, 0], 1, node.meta["like"].shape)


def pixel_unshuffle(walk: Walk, node: fx.Node, x: Tensor, factor: int) -> Any:
    """One channel becomes r^2."""
    vector = along(x, 1)
    if vector is None:
        return walk.refuse(node, (x,), f"{walk.describe(node)} does not find the channels in dimension 1")
    return spread(vector.repeat_interleave(factor**2), 1, node.meta["like"].shape)


def pixel_shuffle_module(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """The same as a module."""
    return pixel_shuffle(walk, node, x, module.upscale_factor)  # type: ignore[arg-type]


def pixel_unshuffle_module(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """The same as a module."""
    return pixel_unshuffle(walk, node, x, module.downscale_factor)  # type: ignore[arg-type]


def channel_shuffle(walk: Walk, node: fx.Node, x: Tensor, groups: int) -> Any:
    """The channel shuffle as one operation."""
    unflatten_groups(walk, x, 1, groups, x.shape[1] // groups)
    return x.unflatten(1, (groups, x.shape[1] // groups)).transpose(1, 2).flatten(1, 2)


def channel_shuffle_module(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """The same as a module."""
    return channel_shuffle(walk, node, x, module.groups)  # type: ignore[arg-type]


def expand(walk: Walk, node: fx.Node, x: Tensor, *sizes: Any) -> Any:
    """expand along dimensions of size one."""
    shape = node.meta["like"].shape
    given = list(node.args[1]) if isinstance(node.args[1], tuple | list) else list(node.args[1:])
    kept = zip(given[::-1], range(x.dim())[::-1], strict=False)
    if any(isinstance(size, int) and size != -1 and varies(x, d) for size, d in kept):
        return walk.refuse(node, (x,), f"{walk.describe(node)} fixes the number of channels: {tuple(shape)}")
    return x.expand(shape)
