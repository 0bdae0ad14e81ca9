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
    """Only plain convolutions and linear layers can be rebuilt from patches."""
    plain = isinstance(layer, nn.Linear) or (
        isinstance(layer, _ConvNd) and not isinstance(layer, _ConvTransposeNd) and layer.groups == 1
    )
    if not plain or (isinstance(layer, _ConvNd) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str))):
        raise UnprunableError(
            f"the output of {name!r} ({type(layer).__name__}) cannot be rebuilt from patches of its input; keep what "
            "it reads with prune.keep, or take another method"
        )


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
    sides: list[Any] = [side for padding in reversed(layer.padding) for side in (padding, padding)]
    padded = F.pad(x, sides)
    found = []
    for place in where:
        window: list[Any] = [slice(None), slice(None)]
        for start, size, stride, dilation in zip(place, layer.kernel_size, layer.stride, layer.dilation, strict=True):
            first = start * stride
            window.append(slice(first, first + dilation * (size - 1) + 1, dilation))
        found.append(padded[tuple(window)].flatten(2))
    return torch.cat(found)
