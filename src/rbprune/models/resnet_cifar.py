"""Residual networks for 32x32 images (He et al. 2016, section 4.2): 6n + 2 layers, with either kind of shortcut."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from rbprune.errors import ModelError
from rbprune.graph.ids import along, spread
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules.registry import register_rule

WIDTHS = (16, 32, 64)


class ZeroPaddedShortcut(nn.Module):
    """Every second pixel, and channels of zeros below and above those of the input (option A of the source).

    The number of padded channels is the length of two buffers, so that it follows when channels of the sum behind the
    shortcut are removed. They hold nothing else, and are not in the state dict: published weights load as they are.

    >>> ZeroPaddedShortcut(1, 2)(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 6, 4, 4])
    """

    below: Tensor
    above: Tensor

    def __init__(self, below: int, above: int) -> None:
        super().__init__()
        self.register_buffer("below", torch.zeros(below), persistent=False)
        self.register_buffer("above", torch.zeros(above), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.below.shape[0], self.above.shape[0]))


def _zero_padded(propagation: Propagation, node: fx.Node, module: ZeroPaddedShortcut, x: Tensor) -> Tensor:
    """The channels of the input keep their identities; each padded one is an entry of a buffer, which goes with it."""
    vector = along(x, 1)
    if vector is None:
        ids: Tensor = propagation.refuse(node, (x,), "does not find the channels in dimension 1", Kind.WRONG_DIMENSION)
        return ids

    def padded(side: str) -> Tensor:
        name, count = f"{node.target}.{side}", len(getattr(module, side))
        known = propagation.axes.get((name, "along"))
        return known.ids if known else propagation.axis(name, "along", propagation.ids.fresh(count), ((name, 0),))

    return spread(torch.cat([padded("below"), vector, padded("above")]), 1, info(node).result.shape)


register_rule(ZeroPaddedShortcut, _zero_padded)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    Where the size changes the shortcut takes every second pixel and pads the channels with zeros on both sides or, with
    ``projections``, is a 1x1 convolution with batch normalisation.
    """

    def __init__(self, in_channels: int, channels: int, stride: int, *, projections: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module | None = None
        if stride != 1 and projections:
            convolution = nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels))
        elif stride != 1:
            padded = (channels - in_channels) // 2
            self.shortcut = ZeroPaddedShortcut(padded, padded)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out = out + (x if self.shortcut is None else self.shortcut(x))
        return F.relu(out)


class ResNetCifar(nn.Module):
    """Three layers of n basic blocks with 16, 32 and 64 channels; depth = 6n + 2.

    Where the width doubles the shortcut is padded with zeros (option A of the source) or, with ``projections``, a 1x1
    convolution with batch normalisation (option B).

    >>> import torch
    >>> ResNetCifar(20)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, depth: int, *, classes: int = 10, projections: bool = False) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ModelError(f"ResNetCifar: depth must be 6n + 2 (20, 32, 44, 56, 110, ...), got {depth}")
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _layer(WIDTHS[0], WIDTHS[0], blocks, 1, projections)
        self.layer2 = _layer(WIDTHS[0], WIDTHS[1], blocks, 2, projections)
        self.layer3 = _layer(WIDTHS[1], WIDTHS[2], blocks, 2, projections)
        self.linear = nn.Linear(WIDTHS[2], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        scores: Tensor = self.linear(x.mean((2, 3)))
        return scores


def _layer(in_channels: int, channels: int, blocks: int, stride: int, projections: bool) -> nn.Sequential:
    first = BasicBlock(in_channels, channels, stride, projections=projections)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))
