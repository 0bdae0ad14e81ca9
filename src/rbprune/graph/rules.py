"""How each operation carries channel identities. An operation without a rule freezes what it touches."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.graph.ids import FROZEN, IdSpace, along, compact, spread
from rbprune.graph.sites import Axis, Role
from rbprune.graph.surgery import weight_of


class Walk:
    """One walk over a traced network with identities in place of activations."""

    def __init__(self, modules: dict[str, nn.Module], keep: tuple[str, ...]) -> None:
        self.modules = modules
        self.keep = keep
        self.ids = IdSpace()
        self.axes: dict[tuple[str, Role], Axis] = {}
        self.makers: dict[str, fx.Node] = {}
        self.sums: list[tuple[fx.Node, fx.Node, fx.Node, Tensor]] = []

    def frozen_like(self, like: Any) -> Any:
        """Frozen identities in the structure of an operation's result."""
        return tree_map_only(Tensor, lambda t: torch.full((), FROZEN).expand(t.shape), like)

    def refuse(self, node: fx.Node, args: Any, reason: str) -> Any:
        """Freeze whatever the operation reads, and its result."""
        for leaf in tree_leaves(args):
            if isinstance(leaf, Tensor):
                self.ids.freeze(leaf, reason)
        return self.frozen_like(node.meta["like"])

    def axis(self, module: str, role: Role, vector: Tensor) -> Tensor:
        """Note that ``vector`` lies on an axis of ``module``; a module that is used twice has one axis."""
        known = self.axes.setdefault((module, role), Axis(module, role, vector))
        if known.ids is not vector:
            self.ids.merge(known.ids, vector)
        return known.ids


def describe(node: fx.Node, walk: Walk) -> str:
    """A name for the operation that a person finds in the model's source."""
    if node.op == "call_module":
        return f"{node.target!r} ({type(walk.modules[str(node.target)]).__name__})"
    return getattr(node.target, "__name__", str(node.target))


def weighted(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor, *rest: Any) -> Tensor:
    """Convolution and linear: reads the identities of its input, makes new ones."""
    name = str(node.target)
    dim = 1 if isinstance(module, _ConvNd) else -1
    source = along(x, dim)
    if source is None:
        source = torch.full((x.shape[dim],), FROZEN)
        walk.ids.freeze(x, f"{describe(node, walk)} reads channels that are not in one dimension")
    if isinstance(module, _ConvNd) and module.groups > 1:
        return walk.refuse(node, (x,), f"{describe(node, walk)} is a grouped convolution")
    if isinstance(module, _ConvTransposeNd) or hasattr(module, "parametrizations"):
        return walk.refuse(node, (x,), f"{describe(node, walk)} is transposed or parametrized")
    walk.axis(name, "in", source)
    made = (name, "out") in walk.axes
    width = weight_of(module).shape[0]
    fresh = walk.axes[name, "out"].ids if made else walk.axis(name, "out", walk.ids.fresh(width))
    walk.makers.setdefault(name, node)
    if any(name == kept or name.startswith(kept + ".") for kept in walk.keep):
        walk.ids.freeze(fresh, f"{name!r} is kept by keep={list(walk.keep)}")
    return spread(fresh, dim, node.meta["like"].shape)


def norm(walk: Walk, node: fx.Node, module: nn.Module, x: Tensor) -> Tensor:
    """Batch normalisation: one entry per channel."""
    vector = along(x, 1)
    if vector is None:
        return walk.refuse(node, (x,), f"{describe(node, walk)} normalises channels that are not in dimension 1")
    walk.axis(str(node.target), "norm", vector)
    return x


def channelwise(walk: Walk, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Activation, pooling, dropout: every channel on its own; space may shrink."""
    shape = node.meta["like"].shape
    if x.shape == shape:
        return x
    vector = along(x, 1)
    if vector is None or len(vector) != shape[1]:
        return walk.refuse(node, (x,), f"{describe(node, walk)} does not keep the channels in dimension 1")
    return spread(vector, 1, shape)


def reduction(walk: Walk, node: fx.Node, x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    """Mean over dimensions along which the identity does not change."""
    if dim is None:
        return walk.refuse(node, (x,), f"{describe(node, walk)} over all dimensions mixes channels")
    small = compact(x)[0]
    low, high = small.amin(dim, *args, **kwargs), small.amax(dim, *args, **kwargs)
    if not torch.equal(low, high):
        return walk.refuse(node, (x,), f"{describe(node, walk)} over dimension {dim} mixes channels")
    return low.expand(node.meta["like"].shape)


def same_shape(walk: Walk, node: fx.Node, *args: Any, **kwargs: Any) -> Tensor:
    """A shape operation without sizes in its arguments acts on identities as on data."""
    return _call(node, args, kwargs)


def reshape(walk: Walk, node: fx.Node, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """view and reshape: exact as long as the sizes written in the model do not bind the channels."""
    result = x.reshape(*args, **kwargs)  # identities are expanded, so that a view of them may not exist
    sizes = node.args[1:] if not isinstance(node.args[1], tuple | list) else node.args[1]
    varying = [d for d in range(result.dim()) if compact(result)[0].shape[d] > 1 and _varies(result, d)]
    for d in varying:
        if len(varying) > 1 or (isinstance(sizes[d], int) and sizes[d] != -1):
            return walk.refuse(node, (x,), f"{describe(node, walk)} fixes the number of channels at {result.shape[d]}")
    return result


def _varies(ids: Tensor, dim: int) -> bool:
    first = ids.narrow(dim, 0, 1)
    return not bool((compact(ids)[0] == compact(first)[0]).all())


def getitem(walk: Walk, node: fx.Node, x: Any, index: Any) -> Any:
    """Indexing: of a tuple, or of dimensions along which the identity does not change."""
    if not isinstance(x, Tensor):
        return x[index]
    parts = index if isinstance(index, tuple) else (index,)
    plain = all(isinstance(part, slice | int) for part in parts)
    if plain and all(part == slice(None) or not _varies(x, d) for d, part in enumerate(parts)):
        return x[index]
    return walk.refuse(node, (x,), f"{describe(node, walk)} selects channels by position")


def concatenate(walk: Walk, node: fx.Node, tensors: Any, dim: int = 0) -> Tensor:
    """Concatenation: the identities one after another."""
    dim = dim % tensors[0].dim()
    vectors = [along(t, dim) for t in tensors]
    if any(v is None for v in vectors):
        return walk.refuse(node, tensors, f"{describe(node, walk)} joins along dimension {dim}, where channels vary")
    return spread(torch.cat([v for v in vectors if v is not None]), dim, node.meta["like"].shape)


def pad(walk: Walk, node: fx.Node, x: Tensor, amounts: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Padding; padded channels are constants and may not be removed."""
    vector = along(x, 1)
    if vector is None or not all(isinstance(a, int) for a in amounts):
        return walk.refuse(node, (x,), f"{describe(node, walk)} pads by amounts that are not constant")
    channel = 2 * (x.dim() - 2)
    before, after = amounts[channel : channel + 2] if len(amounts) >= channel + 2 else (0, 0)
    if (before or after) and (mode != "constant" or before < 0 or after < 0):
        return walk.refuse(node, (x,), f"{describe(node, walk)} pads channels by {mode}")
    return spread(F.pad(vector, (before, after), value=FROZEN), 1, node.meta["like"].shape)


def addition(walk: Walk, node: fx.Node, x: Any, y: Any, **kwargs: Any) -> Any:
    """A sum of two activations makes their channels one; a constant changes nothing."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return scalar(walk, node, x, y)
    if x.shape != y.shape:
        return walk.refuse(node, (x, y), f"{describe(node, walk)} broadcasts {tuple(x.shape)} with {tuple(y.shape)}")
    zeros = FROZEN in (compact(x)[0].unique()[0], compact(y)[0].unique()[0])
    if zeros:
        for ids, other in ((x, y), (y, x)):
            walk.ids.freeze(ids[other == FROZEN], f"{describe(node, walk)} with channels that cannot be removed")
    walk.ids.merge(x, y)
    walk.sums.append((node, node.args[0], node.args[1], x))  # type: ignore[arg-type]
    return torch.maximum(x, y) if zeros else x


def scalar(walk: Walk, node: fx.Node, x: Any, y: Any, **kwargs: Any) -> Any:
    """Arithmetic with a constant keeps the channels; between two activations it has no rule here."""
    tensors = [v for v in (x, y) if isinstance(v, Tensor)]
    if not tensors:
        return _call(node, (x, y), kwargs)
    if len(tensors) == 2:
        return walk.refuse(node, tensors, f"{describe(node, walk)} of two activations has no channel rule")
    return tensors[0]


def plain(walk: Walk, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """Sizes and other numbers."""
    return _call(node, args, kwargs)


def _call(node: fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


Rule = Callable[..., Any]

_ACTIVATIONS = "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh Sigmoid Tanh Softplus"
_OTHERS = "Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout"
_POOLS = [f"{kind}Pool{d}d" for kind in ("Max", "Avg", "AdaptiveAvg", "AdaptiveMax") for d in (1, 2, 3)]
CHANNELWISE = tuple(getattr(nn, name) for name in [*_ACTIVATIONS.split(), *_OTHERS.split(), *_POOLS])

_POOLED = [f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for d in (1, 2, 3)]
_SIMPLE = (
    "relu relu_ relu6 leaky_relu elu selu celu gelu silu mish hardswish hardsigmoid hardtanh "
    "sigmoid tanh softplus dropout dropout1d dropout2d dropout3d"
)
_NAMES = [*_SIMPLE.split(" "), *_POOLED]

FUNCTIONS: dict[Any, Rule] = {
    **{getattr(space, name): channelwise for space in (F, torch) for name in _NAMES if hasattr(space, name)},
    **dict.fromkeys((torch.flatten, torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze), same_shape),
    **dict.fromkeys((operator.add, operator.iadd, torch.add), addition),
    **dict.fromkeys((operator.mul, operator.sub, operator.truediv, operator.floordiv, torch.mul, torch.sub), scalar),
    **{operator.getitem: getitem, getattr: plain, torch.cat: concatenate, torch.reshape: reshape, F.pad: pad},
    **{torch.mean: reduction},
}
METHODS: dict[str, Rule] = {
    **dict.fromkeys(("relu", "relu_", "sigmoid", "sigmoid_", "tanh", "clone", "detach", "float"), channelwise),
    **dict.fromkeys(("flatten", "permute", "transpose", "squeeze", "unsqueeze", "contiguous"), same_shape),
    **dict.fromkeys(("add", "add_"), addition),
    **dict.fromkeys(("mul", "mul_", "sub", "div"), scalar),
    **{"view": reshape, "reshape": reshape, "mean": reduction, "size": plain, "dim": plain},
}


def carry(walk: Walk, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The identities of a node's result."""
    if node.op == "call_module":
        module = walk.modules[str(node.target)]
        if isinstance(module, _ConvNd | nn.Linear):
            return weighted(walk, node, module, *args, **kwargs)
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            return norm(walk, node, module, *args, **kwargs)
        if isinstance(module, CHANNELWISE):
            return channelwise(walk, node, *args, **kwargs)
        if isinstance(module, nn.Flatten):
            return module(*args)
        rule = None
    else:
        rule = METHODS.get(str(node.target)) if node.op == "call_method" else FUNCTIONS.get(node.target)
    if rule is None:
        return walk.refuse(node, (args, kwargs), f"{describe(node, walk)} has no channel rule")
    return rule(walk, node, *args, **kwargs)
