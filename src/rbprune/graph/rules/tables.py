"""The tables of rules: one for functions and methods, by name, and one for layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from rbprune.graph.layer_table import LayerKind, Rule, add_kinds
from rbprune.graph.propagation import Propagation
from rbprune.graph.rules import elementwise, layers, norms, parts, products, shape, timm_layers


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
        "clone detach contiguous float double half bfloat16 abs neg exp log log1p sqrt rsqrt square "
        "reciprocal clamp clamp_ clip sin cos erf sign floor ceil round nan_to_num logical_not isnan isfinite "
        "zeros_like ones_like rand_like randn_like empty_like full_like",
        elementwise.channelwise,
    ),
    **_words("to type_as as_tensor type", elementwise.converted),
    **_words(" ".join([*_POOLS, "interpolate", "upsample"]), elementwise.spatial),
    **_words("softmax log_softmax cumsum", elementwise.over_dimension),
    **_words("new_empty new_zeros new_ones new_full", elementwise.new_tensor),
    **_words("mean sum amax amin std var", elementwise.reduction),
    **_words("max min", elementwise.max_or_min),
    **_words("norm vector_norm", elementwise.norm),
    **_words(
        "add add_ iadd sub sub_ isub mul mul_ imul div div_ truediv itruediv pow maximum minimum "
        "eq ne lt le gt ge logical_and logical_or",
        elementwise.binary,
    ),
    **_words("where lerp lerp_ masked_fill masked_fill_ addcmul addcmul_ addcdiv addcdiv_", elementwise.all_together),
    **_words(
        "floordiv mod not_ and_ or_ is_ size dim numel len _assert size_in_python int",
        elementwise.plain_value,
    ),
    **_words("getattr is_floating_point is_complex element_size", elementwise.known_answer),
    **_words("permute transpose t unsqueeze movedim swapaxes swapdims", shape.rearrange),
    **_words("view reshape", shape.reshape),
    **_words("view_as reshape_as", shape.reshape_as),
    **_words("cat concat concatenate", parts.concatenate),
    **{
        "seen_by_hook": elementwise.seen_by_hook,
        "stack": parts.stack,
        "normalize": elementwise.normalize,
        "flip": elementwise.flip,
        "roll": elementwise.roll,
        "rot90": elementwise.rot90,
        "prelu": elementwise.prelu,
        "grid_sample": elementwise.grid_sample,
        "group_norm": norms.functional_group_norm,
        "glu": parts.glu,
        "einsum": products.einsum,
        "scaled_dot_product_attention": products.attention,
        "unflatten": shape.unflatten,
        "flatten": shape.flatten,
        "chunk": parts.chunk,
        "split": parts.split,
        "getitem": parts.getitem,
        "setitem": parts.setitem,
        "pad": parts.pad,
        "_pad": parts.pad,
        "pixel_shuffle": shape.pixel_shuffle,
        "pixel_unshuffle": shape.pixel_unshuffle,
        "channel_shuffle": parts.channel_shuffle,
        "squeeze": shape.squeeze,
        "expand": shape.expand,
        "expand_as": shape.expand_as,
        "unbind": parts.unbind,
        "batch_norm": norms.functional_batch_norm,
        "layer_norm": norms.layer_norm,
    },
    **_words("matmul bmm mm __matmul__", products.matmul),
    **_words("conv1d conv2d conv3d linear", layers.functional_layer),
    **_words("conv_transpose1d conv_transpose2d conv_transpose3d", layers.functional_transposed),
}

_PADS = [
    f"{kind}Pad{d}d" for kind in ("Zero", "Reflection", "Replication", "Constant", "Circular") for d in _DIMENSIONS
]
_ACTIVATIONS = (
    "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh Sigmoid Tanh Softplus Softsign "
    "RReLU Tanhshrink Hardshrink Softshrink Threshold LogSigmoid Identity "
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout"
)
_POOL_MODULES = [f"{kind}Pool{d}d" for kind in ("Max", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP") for d in _DIMENSIONS]
_UPSAMPLING = ["Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"]
_CHANNELWISE = tuple(getattr(nn, name) for name in _ACTIVATIONS.split())
_SPATIAL = tuple(getattr(nn, name) for name in [*_POOL_MODULES, *_PADS, *_UPSAMPLING] if hasattr(nn, name))

_TIMM_ACTIVATIONS = (
    "Swish Mish Sigmoid Tanh HardSwish HardSigmoid HardMish GELU GELUTanh QuickGELU SwishMe MishMe HardSwishMe "
    "HardSigmoidMe HardMishMe DropPath"
)


def _by_attributes(rule: Rule, *attributes: str) -> Rule:
    """The rule of a module that is a function of its input and of some of its own attributes."""

    def module_rule(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
        return rule(propagation, node, x, *(getattr(module, name) for name in attributes))

    return module_rule


LAYERS = (
    LayerKind(
        layers.convolution,
        types=(_ConvNd,),
        timm=("Conv2dSame",),
        widths={"out_channels": ("out", "along"), "in_channels": ("in", "along")},
        group_counts={"groups": ("along",)},
    ),
    LayerKind(
        layers.linear,
        types=(nn.Linear,),
        timm=("Linear",),
        widths={"out_features": ("out",), "in_features": ("in",)},
    ),
    LayerKind(norms.batch_norm, types=(_BatchNorm, _InstanceNorm), widths={"num_features": ("along",)}),
    LayerKind(
        norms.group_norm,
        types=(nn.GroupNorm,),
        timm=("GroupNorm", "GroupNorm1"),
        widths={"num_channels": ("along",)},
        group_counts={"num_groups": ("along",)},
    ),
    LayerKind(layers.recurrent, types=(nn.RNNBase,), widths={"input_size": ("in",)}),
    LayerKind(elementwise.channelwise_module, types=(nn.PReLU,), widths={"num_parameters": ("along",)}),
    LayerKind(_by_attributes(norms.layer_norm, "normalized_shape"), types=(nn.LayerNorm,)),
    LayerKind(
        elementwise.channelwise_module,
        types=_CHANNELWISE,
        timm=tuple(_TIMM_ACTIVATIONS.split()),
        torchvision=("StochasticDepth",),
    ),
    LayerKind(_by_attributes(elementwise.spatial), types=_SPATIAL, timm=("AvgPool2dSame", "MaxPool2dSame")),
    LayerKind(_by_attributes(elementwise.over_dimension, "dim"), types=(nn.Softmax, nn.LogSoftmax)),
    LayerKind(_by_attributes(shape.flatten, "start_dim", "end_dim"), types=(nn.Flatten,)),
    LayerKind(shape.unflatten_module, types=(nn.Unflatten,)),
    LayerKind(_by_attributes(parts.glu, "dim"), types=(nn.GLU,)),
    LayerKind(_by_attributes(shape.pixel_shuffle, "upscale_factor"), types=(nn.PixelShuffle,)),
    LayerKind(_by_attributes(shape.pixel_unshuffle, "downscale_factor"), types=(nn.PixelUnshuffle,)),
    LayerKind(_by_attributes(parts.channel_shuffle, "groups"), types=(nn.ChannelShuffle,)),
    LayerKind(timm_layers.standardised, timm=("StdConv2d", "StdConv2dSame", "ScaledStdConv2d", "ScaledStdConv2dSame")),
    LayerKind(timm_layers.normalised_and_activated, timm=("BatchNormAct2d", "SyncBatchNormAct", "GroupNormAct")),
    LayerKind(timm_layers.mixed_convolutions, timm=("MixedConv2d",), refresh=timm_layers.follow_children),
    LayerKind(timm_layers.blur_pool, timm=("BlurPool2d",), widths={"channels": ("along",)}),
)
"""Layers of torch and timm. One of timm without widths here has those of the class of torch that it derives from."""

add_kinds(LAYERS)
