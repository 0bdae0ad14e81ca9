"""Residual networks of one's own, for tests of whole branches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.graph.operations import conv

CHANNELS = 6


class Block(nn.Module):
    """Two convolutions beside an identity; ``run`` says how they are put together."""

    def __init__(self, run: Callable[[Block, Tensor], Tensor]) -> None:
        super().__init__()
        self.run = run
        self.conv1, self.bn1 = conv(CHANNELS, 8), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = conv(8, CHANNELS), nn.BatchNorm2d(CHANNELS)
        self.relu = nn.ReLU(inplace=True)
        self.gate = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.scale = nn.Parameter(torch.full((CHANNELS, 1, 1), 0.5))
        self.pre = nn.BatchNorm2d(CHANNELS)
        self.post = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)

    def branch(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))


def in_place(block: Block, x: Tensor) -> Tensor:
    out = block.branch(x)
    out += x
    return block.relu(out)


def excited(block: Block, x: Tensor) -> Tensor:
    out = block.branch(x)
    return F.relu(x + out * torch.sigmoid(block.gate(out.mean((2, 3), keepdim=True))))


FORMS: dict[str, tuple[Callable[[Block, Tensor], Tensor], list[str]]] = {
    "no activation after the sum": (lambda b, x: x + b.branch(x), []),
    "shortcut first": (lambda b, x: torch.add(x, b.branch(x)), []),
    "relu after the sum": (lambda b, x: F.relu(b.branch(x) + x), []),
    "in place": (in_place, []),
    "another activation": (lambda b, x: F.silu(b.branch(x) + x), ["torch.silu"]),
    "pre-activation": (lambda b, x: x + b.conv2(F.relu(b.bn1(b.conv1(F.relu(b.pre(x)))))), []),
    "normalised after the sum": (lambda b, x: b.post(b.branch(x) + x), ["post"]),
    "normalised before and after": (lambda b, x: b.post((y := b.pre(x)) + b.branch(y)), ["pre", "post"]),
    "squeeze and excitation": (excited, []),
    "layer scale": (lambda b, x: x + b.scale * b.branch(x), []),
    "dropout": (lambda b, x: x + F.dropout(b.branch(x), 0.3, b.training), []),
}
"""How a block may be written, and the steps that are left of it when its input is the output of a relu."""


def residual_net(run: Callable[[Block, Tensor], Tensor], blocks: int = 3) -> nn.Sequential:
    """Blocks between a stem and a head, for images of 3 x 8 x 8."""
    stem = nn.Sequential(conv(3, CHANNELS), nn.BatchNorm2d(CHANNELS), nn.ReLU())
    body = nn.Sequential(*(Block(run) for _ in range(blocks)))
    net = nn.Sequential(stem, body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 3))
    net(torch.randn(2, 3, 8, 8)).sum().backward()
    for block in body:
        for name in ("bn2", "gate", "scale", "pre", "post"):  # what this form does not use
            part = getattr(block, name)
            parameters = [part] if isinstance(part, nn.Parameter) else list(part.parameters())
            if all(parameter.grad is None for parameter in parameters):
                delattr(block, name)
    net.zero_grad()
    return net


class Flat(nn.Module):
    """Two residual sums in one forward: no module is a block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, CHANNELS)
        self.a, self.b, self.bn = conv(CHANNELS, 8), conv(8, CHANNELS), nn.BatchNorm2d(CHANNELS)
        self.tail = nn.Sequential(conv(CHANNELS, 5), nn.ReLU(), conv(5, CHANNELS))
        self.head = nn.Linear(CHANNELS, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        out = self.bn(self.b(F.relu(self.a(x))))
        out += x
        x = F.relu(out)
        x = x + self.tail(x)
        return self.head(x.mean((2, 3)))
