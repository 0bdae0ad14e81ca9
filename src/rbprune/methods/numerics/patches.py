"""Samples of what a layer reads: patches of its input at random places, and its output there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.errors import UnprunableError

POINTS = 10
"""Places per image, the same for all images of a batch."""

Seen = Callable[[nn.Module, Tensor, Tensor], None]


def check_layer(layer: nn.Module, name: str) -> None:
    """Refuse what cannot be rebuilt from patches: all but plain convolutions and linear layers."""
    if not is_plain(layer):
        raise UnprunableError(
            f"the output of {name!r} ({type(layer).__name__}) cannot be rebuilt from patches of its input; keep what "
            "it reads with prune.keep, or take another method"
        )


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer gives its weights times patches of its input: a linear layer, or a convolution of one group with
    any stride, dilation and padding, whose class does not change how it is computed."""
    if isinstance(layer, nn.Linear):
        return type(layer).forward is nn.Linear.forward
    if not isinstance(layer, _ConvNd) or isinstance(layer, _ConvTransposeNd) or layer.groups != 1:
        return False
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return any(type(layer).forward is k.forward and type(layer)._conv_forward is k._conv_forward for k in kinds)


def places(layer: nn.Module, output: Tensor) -> list[tuple[int, ...]]:
    """Random places of a layer's output: one for each image of it is enough for a linear layer, POINTS otherwise."""
    if isinstance(layer, nn.Linear):
        return [()]
    return [tuple(int(torch.randint(size, ())) for size in output.shape[2:]) for _ in range(POINTS)]


def at(output: Tensor, where: list[tuple[int, ...]]) -> Tensor:
    """The output at these places: [images x places, filters]."""
    every: list[Any] = [slice(None), slice(None)]
    return torch.cat([output[tuple(every + list(place))].flatten(1) for place in where])


def patches(layer: nn.Module, x: Tensor, where: list[tuple[int, ...]]) -> Tensor:
    """What the layer reads for these places: [images x places, channels, kernel]."""
    if isinstance(layer, nn.Linear):
        return x.unsqueeze(-1)
    assert isinstance(layer, _ConvNd)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(x, layer._reversed_padding_repeated_twice, mode)
    found = []
    for place in where:
        window: list[Any] = [slice(None), slice(None)]
        for start, size, stride, dilation in zip(place, layer.kernel_size, layer.stride, layer.dilation, strict=True):
            first = start * stride
            window.append(slice(first, first + dilation * (size - 1) + 1, dilation))
        found.append(padded[tuple(window)].flatten(2))
    return torch.cat(found)
