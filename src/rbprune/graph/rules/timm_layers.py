"""Rules for layers of timm with a forward of their own; the graph does not look inside of these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.graph.ids import FROZEN, along, spread
from rbprune.graph.layer_table import computes_as_torch, timm_kind
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules.elementwise import channelwise_module
from rbprune.graph.rules.layers import convolution, convolutions_of_parts
from rbprune.graph.rules.norms import batch_norm, group_norm
from rbprune.graph.sites import Role


def standardised(propagation: Propagation, node: fx.Node, module: _ConvNd, x: Tensor) -> Any:
    """Every filter is standardised over its inputs: one input less changes it, one filter less changes no other."""
    depthwise = module.groups > 1 and module.groups == module.in_channels
    if not depthwise:
        what = "standardises its filters over input channels: one less changes the others"
        propagation.freeze(node, x, what, Kind.MIXES_CHANNELS)
        x = torch.full((), FROZEN).expand(x.shape)
    result = convolution(propagation, node, module, x)
    key: tuple[str, Role] = (str(node.target), "along" if depthwise else "out")
    gain = (f"{node.target}.gain", 0)
    if hasattr(module, "gain") and gain not in propagation.axes[key].tensors:
        propagation.axes[key] = replace(propagation.axes[key], tensors=(*propagation.axes[key].tensors, gain))
    return result


def normalised_and_activated(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """Batch or group normalisation with dropout and activation in one module."""
    inner = [m for m in (getattr(module, "drop", None), getattr(module, "act", None)) if m is not None]
    if not all(_is_pointwise(m) for m in inner):
        kinds = ", ".join(type(m).__name__ for m in inner)
        return propagation.refuse(node, (x,), f"holds a {kinds} without a rule", Kind.NO_RULE)
    norm = group_norm if isinstance(module, nn.GroupNorm) else batch_norm
    return norm(propagation, node, module, x)  # type: ignore[arg-type]


def mixed_convolutions(propagation: Propagation, node: fx.Node, module: Any, x: Tensor) -> Any:
    """MixedConv2d: convolutions of several kernels, each with a part of the channels of its own."""
    children = {f"{node.target}.{leaf}": child for leaf, child in module.items()}
    if not all(_is_convolution(child) for child in children.values()):
        return propagation.refuse(node, (x,), "holds layers that are no plain convolutions", Kind.NO_RULE)
    return convolutions_of_parts(propagation, node, children, x, list(module.splits))


def follow_children(module: Any) -> None:
    """Let a MixedConv2d know how many channels each of its convolutions reads, and all of them."""
    children = list(module.values())
    module.splits = [child.in_channels for child in children]
    module.in_channels, module.out_channels = sum(module.splits), sum(child.out_channels for child in children)


def _is_convolution(module: nn.Module) -> bool:
    kind = timm_kind(module)
    plain = isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd) and computes_as_torch(module)
    return plain or (kind is not None and kind.rule is convolution)


def blur_pool(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """A fixed filter for each channel."""
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
    if getattr(module, "channels", None) is not None:
        propagation.axis(str(node.target), "along", vector, ((f"{node.target}.filt", 0),))
    return spread(vector, 1, info(node).result.shape)


_TORCH_POINTWISE = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Dropout, nn.Dropout2d),
)


def _is_pointwise(module: nn.Module) -> bool:
    kind = timm_kind(module)
    return (kind is not None and kind.rule is channelwise_module) or type(module) in _TORCH_POINTWISE
