"""Which rule belongs to which operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._pytree import tree_leaves

from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules import elementwise, layers, shape, size_dependence
from rbprune.graph.rules.timm_layers import timm_rule
from rbprune.graph.rules.verify_custom_layers import library_forward, tried_rule
from rbprune.graph.tracing.concrete_sizes import decided

Rule = Callable[..., Any]


def _words(text: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(text.split(), rule)


_DIMENSIONS = (1, 2, 3)
_POOLS = [
    f"{kind}_pool{d}d"
    for kind in ["max", "avg", "adaptive_avg", "adaptive_max", "lp", "fractional_max"]
    for d in _DIMENSIONS
]

BY_NAME: dict[str, Rule] = {
    **_words(
        "relu relu_ relu6 leaky_relu leaky_relu_ elu elu_ selu celu gelu silu mish hardswish hardsigmoid hardtanh "
        "hardtanh_ sigmoid sigmoid_ tanh tanh_ softplus softsign tanhshrink hardshrink softshrink threshold logsigmoid "
        "dropout dropout1d dropout2d dropout3d dropout_ alpha_dropout feature_dropout stochastic_depth drop_path "
        "clone detach contiguous float double half bfloat16 to type_as abs neg exp log log1p sqrt rsqrt square "
        "reciprocal clamp clamp_ clip sin cos erf sign floor ceil round nan_to_num logical_not isnan isfinite "
        "zeros_like ones_like rand_like randn_like empty_like full_like",
        elementwise.channelwise,
    ),
    **_words(" ".join([*_POOLS, "interpolate", "upsample"]), elementwise.spatial),
    **_words("softmax log_softmax cumsum", elementwise.over_dimension),
    **_words("new_empty new_zeros new_ones new_full", elementwise.fixed),
    **_words("mean sum amax amin std var", elementwise.reduction),
    **_words("max min", elementwise.extreme),
    **_words("norm vector_norm", elementwise.norm),
    **_words(
        "add add_ iadd sub sub_ isub mul mul_ imul div div_ truediv itruediv pow maximum minimum "
        "eq ne lt le gt ge logical_and logical_or",
        elementwise.binary,
    ),
    **_words("where lerp lerp_ masked_fill masked_fill_ addcmul addcmul_ addcdiv addcdiv_", elementwise.together),
    **_words(
        "floordiv mod not_ and_ or_ is_ size dim numel len getattr _assert decided int",
        elementwise.plain,
    ),
    **_words("permute transpose t unsqueeze movedim swapaxes swapdims", shape.same),
    **_words("view reshape", shape.reshape),
    **_words("cat concat concatenate", shape.concatenate),
    **{
        "stack": shape.stack,
        "normalize": elementwise.normalize,
        "flip": elementwise.flip,
        "roll": elementwise.roll,
        "glu": shape.glu,
        "unflatten": shape.unflatten,
        "flatten": shape.flatten,
        "chunk": shape.chunk,
        "split": shape.split,
        "getitem": shape.getitem,
        "setitem": shape.setitem,
        "pad": shape.pad,
        "_pad": shape.pad,
        "pixel_shuffle": shape.pixel_shuffle,
        "pixel_unshuffle": shape.pixel_unshuffle,
        "channel_shuffle": shape.channel_shuffle,
        "squeeze": shape.squeeze,
        "expand": shape.expand,
        "expand_as": shape.expand_as,
        "unbind": shape.unbind,
        "batch_norm": layers.functional_batch_norm,
        "layer_norm": layers.layer_norm,
    },
    **_words("conv1d conv2d conv3d linear", layers.functional_layer),
    **_words("conv_transpose1d conv_transpose2d conv_transpose3d", layers.functional_transposed),
}

_PADS = [
    f"{kind}Pad{d}d" for kind in ("Zero", "Reflection", "Replication", "Constant", "Circular") for d in _DIMENSIONS
]
_ACTIVATIONS = (
    "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh Sigmoid Tanh Softplus Softsign "
    "PReLU RReLU Tanhshrink Hardshrink Softshrink Threshold LogSigmoid Identity "
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout"
)
_POOL_MODULES = [f"{kind}Pool{d}d" for kind in ("Max", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP") for d in _DIMENSIONS]
_UPSAMPLING = ["Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"]
_CHANNELWISE = tuple(getattr(nn, name) for name in _ACTIVATIONS.split())
_SPATIAL = tuple(getattr(nn, name) for name in [*_POOL_MODULES, *_PADS, *_UPSAMPLING] if hasattr(nn, name))

BY_MODULE: list[tuple[Any, Rule]] = [
    (nn.SyncBatchNorm, layers.batch_norm),
    (_ConvNd, layers.convolution),
    (nn.Linear, layers.linear),
    (_BatchNorm, layers.batch_norm),
    (_InstanceNorm, layers.batch_norm),
    (nn.GroupNorm, layers.group_norm),
    (nn.LayerNorm, layers.layer_norm_module),
    (_CHANNELWISE, elementwise.channelwise_module),
    (_SPATIAL, elementwise.spatial_module),
    ((nn.Softmax, nn.LogSoftmax), elementwise.over_dimension_module),
    (nn.Flatten, shape.flatten_module),
    (nn.Unflatten, shape.unflatten_module),
    (nn.GLU, shape.glu_module),
    (nn.PixelShuffle, shape.pixel_shuffle_module),
    (nn.PixelUnshuffle, shape.pixel_unshuffle_module),
    (nn.ChannelShuffle, shape.channel_shuffle_module),
]

_OWN: dict[Any, Rule] = {}


def register_rule(operation: Any, rule: Rule) -> None:
    """Teach the graph an operation: a function, a method's name, or a module class.

    The rule is called with the propagation, the fx node, (for a module class, the module,) and the call's arguments,
    in which activations are replaced by tensors of channel identities; it returns the identities of the result.

    >>> import torch
    >>> from rbprune.graph.rules.elementwise import channelwise
    >>> register_rule(torch.special.expit, channelwise)
    """
    _OWN[operation] = rule


_FOLLOW_COUNTS = (shape.reshape, shape.unflatten, shape.split, shape.expand)
"""Rules that know what to do with a size that changes when channels go."""


def _find(propagation: Propagation, node: fx.Node) -> tuple[Rule | None, tuple[Any, ...]]:
    if node.op == "call_module":
        module = propagation.modules[str(node.target)]
        if own := _own_rule(module):
            return own, (module,)
        if "forward" in vars(module) or type(module).forward is not library_forward(type(module)):
            return None, ()
        return next((rule for kind, rule in BY_MODULE if isinstance(module, kind)), None), (module,)
    if node.target in _OWN:
        return _OWN[node.target], ()
    if node.op == "call_method":
        return BY_NAME.get(str(node.target)), ()
    home = str(getattr(node.target, "__module__", None) or "torch")
    known = home.split(".")[0] in ("torch", "_operator", "builtins", "torchvision", "timm", "math", "rbprune")
    return (BY_NAME.get(getattr(node.target, "__name__", "")) if known else None), ()


def _own_rule(module: nn.Module) -> Rule | None:
    """A rule that was taught for the module's class, one for a layer of timm, or one that was found by trying."""
    taught = next((_OWN[kind] for kind in type(module).__mro__ if kind in _OWN), None)
    return taught or (None if "forward" in vars(module) else timm_rule(module) or tried_rule(module))


def is_layer(module: nn.Module) -> bool:
    """Whether a module that is not torch's own has a rule, so that nobody need look inside."""
    return _own_rule(module) is not None


def carry(propagation: Propagation, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The identities of a node's result."""
    rule, extra = _find(propagation, node)
    size_dependence.note(propagation, node, args)
    like = node.meta["like"]
    computes = any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs, like)))
    if node.target in (torch._assert, decided):
        size_dependence.settle(propagation, node)
    elif computes and rule not in _FOLLOW_COUNTS:
        size_dependence.freeze(propagation, node, size_dependence.used(propagation, node))
    if rule is None:
        layers.count_inside(propagation, node)
        if "why" in node.meta:
            what = f"has no channel rule and cannot be followed: {node.meta['why']}"
            return propagation.refuse(node, (args, kwargs), what, Kind.CANNOT_BE_FOLLOWED)
        return propagation.refuse(node, (args, kwargs), "has no channel rule", Kind.NO_RULE)
    if kwargs.get("out") is not None:
        return propagation.refuse(node, (args, kwargs), "with out= has no channel rule", Kind.NO_RULE)
    try:
        result = rule(propagation, node, *extra, *args, **kwargs)
    except Exception:
        size_dependence.freeze(propagation, node, size_dependence.used(propagation, node))
        raise
    if node.op == "call_module" and (reason := propagation.kept(str(node.target))):
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                propagation.ids.freeze(leaf, reason)
    if isinstance(like, Tensor) and result.shape != like.shape:
        raise ValueError(
            f"the rule of {propagation.describe(node)} makes {tuple(result.shape)}, not {tuple(like.shape)}"
        )
    return result
