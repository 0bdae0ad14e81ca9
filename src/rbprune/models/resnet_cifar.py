"""Residual networks for 32x32 images (He et al. 2016, section 4.2): 6n + 2 layers, shortcuts without weights."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import ModelError

WIDTHS = (16, 32, 64)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    Where the size changes the shortcut takes every second pixel and pads the channels with zeros on both sides.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.pad = (channels - in_channels) // 2
        self.downsample = stride != 1

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad)) if self.downsample else x
        out = out + shortcut
        return F.relu(out)


class ResNetCifar(nn.Module):
    """Three layers of n basic blocks with 16, 32 and 64 channels; depth = 6n + 2.

    >>> import torch
    >>> ResNetCifar(20)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, depth: int, *, classes: int = 10) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ModelError(f"ResNetCifar: depth must be 6n + 2 (20, 32, 44, 56, 110, ...), got {depth}")
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _layer(WIDTHS[0], WIDTHS[0], blocks, stride=1)
        self.layer2 = _layer(WIDTHS[0], WIDTHS[1], blocks, stride=2)
        self.layer3 = _layer(WIDTHS[1], WIDTHS[2], blocks, stride=2)
        self.linear = nn.Linear(WIDTHS[2], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        scores: Tensor = self.linear(x.mean((2, 3)))
        return scores


def _layer(in_channels: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, channels, stride)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))
