"""Operations that treat every channel, or every value, on its own."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from rbprune.graph.ids import FROZEN, along, compact, spread, tensors_in, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind


def channelwise(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Activation, dropout: every value or channel on its own, wherever the channels are."""
    like = info(node).result
    if not isinstance(like, Tensor) or tensors_in((args, kwargs)):
        return propagation.refuse(node, (x, args, kwargs), "of several tensors has no channel rule", Kind.NO_RULE)
    return x


def spatial(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Pooling, padding, interpolation: neighbours in space meet, so channels may be nowhere but in dimension 1."""
    vector = along(x, 1)
    if vector is None or x.dim() != _space(propagation, node, x) + 2:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    kept, like = channelwise(propagation, node, x, *args, **kwargs), info(node).result
    return spread(vector, 1, like.shape) if isinstance(like, Tensor) else kept


def _space(propagation: Propagation, node: fx.Node, x: Tensor) -> int:
    """In how many dimensions an operation sees neighbours: a MaxPool2d takes its last two, with or without a batch."""
    kinds = type(propagation.modules[str(node.target)]).__mro__ if node.op == "call_module" else (node.target,)
    found = re.search(r"([123])d", " ".join(getattr(kind, "__name__", str(kind)) for kind in kinds))
    return int(found[1]) if found else x.dim() - 2


def channelwise_module(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor, *args: Any) -> Any:
    """An activation or dropout as a module; one with a parameter per channel (PReLU) carries it along."""
    if isinstance(module, nn.PReLU) and module.num_parameters > 1:
        vector = along(x, 1)
        if vector is None:
            return propagation.refuse(
                node, (x,), "has parameters for something else than channels", Kind.WRONG_DIMENSION
            )
        propagation.axis(str(node.target), "along", vector, ((f"{node.target}.weight", 0),))
    return channelwise(propagation, node, x)


def converted(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """to, type, type_as, as_tensor: the same values in another type, or that of another tensor."""
    like = info(node).result
    return x if isinstance(like, Tensor) else like


def prelu(propagation: Propagation, node: fx.Node, x: Tensor, weight: Tensor) -> Any:
    """F.prelu: one slope, or one for each channel."""
    if weight.numel() == 1:
        return x
    slopes = weight.view([-1 if d == 1 else 1 for d in range(x.dim())])
    return binary(propagation, node, x, slopes)


def grid_sample(propagation: Propagation, node: fx.Node, x: Tensor, grid: Tensor, *args: Any, **kwargs: Any) -> Any:
    """F.grid_sample: every channel is read at the same places, which say themselves where: they are no channels."""
    propagation.freeze(node, grid, "takes places from it", Kind.MIXES_CHANNELS)
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    return spread(vector, 1, info(node).result.shape)


def over_dimension(
    propagation: Propagation, node: fx.Node, x: Tensor, dim: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Softmax and the like: the values that they run over go together, so they may not run over all channels."""
    if not isinstance(dim, int) or (varies(x, dim) and along(x, dim) is not None):
        return propagation.refuse(node, (x,), "runs over channels", Kind.MIXES_CHANNELS)
    propagation.ids.merge(x, x.narrow(dim, 0, 1), propagation.reason(node, "over channels", Kind.BOUND))
    return x


def normalize(
    propagation: Propagation, node: fx.Node, x: Tensor, p: Any = 2.0, dim: Any = 1, *args: Any, **kwargs: Any
) -> Any:
    """F.normalize, whose second argument is the norm, and which runs over a dimension as softmax does."""
    return over_dimension(propagation, node, x, dim)


def reduction(
    propagation: Propagation, node: fx.Node, x: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    """Sum, mean, deviation: channels that are added up belong together."""
    if dim is None or kwargs.get("out") is not None:
        return propagation.refuse(node, (x,), "over all dimensions mixes channels", Kind.MIXES_CHANNELS)
    bond = propagation.reason(node, "over channels", Kind.BOUND)
    result = x
    for d in sorted({d % x.dim() for d in (dim if isinstance(dim, tuple | list) else (dim,))}, reverse=True):
        first = result.narrow(d, 0, 1)
        propagation.ids.merge(result, first, bond)
        result = first if keepdim else first.squeeze(d)
    return result


def binary(propagation: Propagation, node: fx.Node, x: Any, y: Any, **kwargs: Any) -> Any:
    """Arithmetic of two activations: the channels that meet belong together; a constant changes nothing."""
    tensors = [v for v in (x, y) if isinstance(v, Tensor) and v.numel() > 1]
    if not tensors:
        like = info(node).result
        if isinstance(like, Tensor):
            return propagation.frozen_like(like)
        return plain_value(propagation, node, x, y, **kwargs)
    if len(tensors) == 1:
        return tensors[0].expand(info(node).result.shape)
    x, y = tensors
    if x.dim() != y.dim():
        x, y = (t.view([1] * (max(x.dim(), y.dim()) - t.dim()) + list(t.shape)) for t in (x, y))
    for a, b in ((x, y), (y, x)):
        stretched = [d for d in range(a.dim()) if a.shape[d] == 1 and b.shape[d] > 1 and varies(b, d)]
        if stretched:  # one value meets many channels: it stays, and they go on as they are
            propagation.freeze(node, a, "spreads it over channels", Kind.MEETS_FIXED)
            if not any(varies(a, d) and varies(b, d) for d in range(a.dim())):
                return b.expand(info(node).result.shape)
            return propagation.refuse(node, (x, y), "mixes channels", Kind.MIXES_CHANNELS)
    propagation.ids.merge(x, y)
    frozen = freeze_partners(propagation, node, x, y)
    if propagation.describe(node) in ("add", "add_", "iadd", "lerp", "lerp_"):
        propagation.sums.append((node, node.args[0], node.args[1], x))  # type: ignore[arg-type]
    result = torch.maximum(*torch.broadcast_tensors(x, y)) if frozen else torch.broadcast_tensors(x, y)[0]
    return result.expand(info(node).result.shape)


def all_together(propagation: Propagation, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """where, lerp and the like: all the activations among the arguments meet."""
    result, *others = (v for v in tensors_in((args, kwargs)) if v.numel() > 1)
    for other in others:
        result = binary(propagation, node, result, other)
    return result.expand(info(node).result.shape)


def max_or_min(
    propagation: Propagation, node: fx.Node, x: Any, y: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    """max and min: of two activations, of numbers, or along a dimension, where they return places as well."""
    if isinstance(y, Tensor):
        return binary(propagation, node, x, y)
    dim = kwargs.get("dim", y)
    if not isinstance(x, Tensor) or not isinstance(dim, int):
        return plain_value(propagation, node, *(v for v in (x, y) if v is not None), **kwargs)
    if varies(x, dim):
        return propagation.refuse(node, (x,), "runs over channels", Kind.MIXES_CHANNELS)
    found = reduction(propagation, node, x, dim, keepdim)
    return type(info(node).result)((found, found))


def norm(
    propagation: Propagation,
    node: fx.Node,
    x: Tensor,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    **kwargs: Any,
) -> Any:
    """A norm along dimensions: channels that are added up belong together."""
    return reduction(propagation, node, x, dim, keepdim)


def flip(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """flip: turned round in space, channels stay what they are."""
    return _moved(propagation, node, x, (args, kwargs))


def roll(propagation: Propagation, node: fx.Node, x: Tensor, shifts: Any, dims: Any = None) -> Any:
    """roll: shifted in space, channels stay what they are; without dimensions the shift runs through channels too."""
    return _moved(propagation, node, x, range(x.dim()) if dims is None else dims)


def rot90(propagation: Propagation, node: fx.Node, x: Tensor, k: int = 1, dims: Any = (0, 1)) -> Any:
    """rot90: turned in space, channels stay what they are."""
    moved = _moved(propagation, node, x, dims)
    return moved.rot90(k, dims) if moved is x else moved


def _moved(propagation: Propagation, node: fx.Node, x: Tensor, dims: Any) -> Any:
    """Values move along ``dims``, which may hold no channels."""
    if any(varies(x, dim) for dim in tree_leaves(dims)):
        return propagation.refuse(node, (x,), "moves channels", Kind.MIXES_CHANNELS)
    return x


def freeze_partners(propagation: Propagation, node: fx.Node, x: Tensor, y: Tensor) -> bool:
    """Freeze channels that meet something frozen, with a reason of their own; whether there were any."""
    x, y = compact(*torch.broadcast_tensors(x, y))
    if x.numpy().all() and y.numpy().all():  # the frozen identity is 0
        return False
    met = (x == FROZEN) | (y == FROZEN)
    reason = propagation.reason(node, "with channels that cannot be removed", Kind.MEETS_FIXED)
    propagation.ids.freeze(torch.maximum(x, y)[met], reason)
    return True


def seen_by_hook(propagation: Propagation, node: fx.Node, value: Any, module: str) -> Any:
    """A value that a forward hook sees: it stays as it is where the hook was found to change it."""
    reason = info(node).hook
    return value if reason is None else propagation.freeze_around(node, value, reason)


def new_tensor(propagation: Propagation, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A new tensor of a given size (x.new_zeros): it has nothing of x, and does not change with its channels."""
    return propagation.frozen_like(info(node).result)


def plain_value(propagation: Propagation, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """Sizes and other numbers are computed as they are."""
    if propagation.describe(node) not in _ASK and tensors_in((args, kwargs)):
        return propagation.refuse(node, (args, kwargs), "of activations has no channel rule", Kind.NO_RULE)
    return call(node, args, kwargs)


_ASK = ("size", "dim", "numel", "len", "getattr")
"""Questions that a tensor of identities answers as the activation would."""


def known_answer(propagation: Propagation, node: fx.Node, x: Any, *args: Any, **kwargs: Any) -> Any:
    """What is asked of a tensor that identities would answer otherwise: its type, its device, its attributes."""
    like = info(node).result
    return call(node, (x, *args), kwargs) if isinstance(like, Tensor | torch.Size) else like


def call(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """Run the operation of a node itself."""
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]
