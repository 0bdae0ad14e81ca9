"""Networks whose modules lead a trace astray: hooks that hand activations on, layers that are not what their class is.

Each is either followed as it runs, with the sites that it must have, or refused with words of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.graph.operations import Net, conv

ASTRAY = "is not what its forward computes"


@dataclass
class Hostile:
    """A network, and the sites that it must have, or what is said of it."""

    make: Callable[[], nn.Module]
    sites: dict[str, int] | None = None
    refused: str = ""
    shape: tuple[int, ...] = (3, 3, 6, 6)
    frozen: dict[str, str] = field(default_factory=dict)
    """Layers that stay, each with words of the reason."""


def hooks_that_collect() -> nn.Module:
    features: list[Tensor] = []

    def forward(net: Net, x: Tensor) -> Tensor:
        features.clear()
        y = net.b(net.a(x))
        for feature in features:
            y = y + feature
        return net.c(y)

    net = Net(forward, a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))
    net.a.register_forward_hook(lambda module, args, output: features.append(output))
    return net


class Stored:
    """As fastai does it: a hook that keeps the last output of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.value: Tensor | None = None
        module.register_forward_hook(self.store)

    def store(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.value = output


def stored_and_concatenated() -> nn.Module:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.b(net.a(x))
        return net.c(y if net.hook.value is None else torch.cat([y, net.hook.value], 1))

    net = Net(forward, a=conv(3, 6), b=conv(6, 4), c=conv(10, 2))
    net.hook = Stored(net.a)
    return net


def stored_by_a_hook_that_changes_as_well() -> nn.Module:
    kept: list[Tensor] = []

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        kept[:] = [args[0]]
        return output * 2

    def forward(net: Net, x: Tensor) -> Tensor:
        kept.clear()
        y = net.b(net.a(x))
        return net.c(y + kept[0] if kept else y)

    net = Net(forward, a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))
    net.b.register_forward_hook(hook)
    return net


def hook_of_the_model_returns_features() -> nn.Module:
    features: list[Tensor] = []
    net = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 2))
    net[0].register_forward_hook(lambda module, args, output: features.append(output))
    net.register_forward_hook(lambda module, args, output: (output, features[-1]))
    return net


def hook_of_the_model_scales() -> nn.Module:
    net = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 2))
    net.register_forward_hook(lambda module, args, output: output * 2)
    return net


def hooks_that_look() -> nn.Module:
    seen: list[float] = []
    net = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 2))
    net[0].register_forward_hook(lambda module, args, output: seen.append((output * 2).mean().dim()))
    net[0].register_forward_hook(lambda module, args, output: setattr(module, "last", output))
    net[2].register_forward_pre_hook(lambda module, args: setattr(module, "seen", args[0]))
    return net


class PlainConv(nn.Conv2d):
    """A subclass that computes nothing of its own."""


class PlainNorm(nn.BatchNorm2d):
    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-3)


class ConvWithChild(nn.Conv2d):
    """A convolution that pads by a module."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__(i, o, 3)
        self.pad = nn.ReflectionPad2d(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.pad(x))


class Backwards(nn.Conv2d):
    """A convolution that reads its channels backwards, in a method that torch calls."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(x.flip(1), weight, bias)


def hook_inside_of_a_layer() -> nn.Module:
    net = nn.Sequential(conv(3, 6), ConvWithChild(6, 4), conv(4, 2))
    net[1].pad.register_forward_hook(lambda module, args, output: output.flip(1))
    return net


class ListHead(nn.Module):
    """As YOLOv5's head: writes into the list that it is given, and cannot be followed."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(width, 4), conv(5, 4)])

    def forward(self, xs: list[Tensor]) -> Tensor:
        for i, layer in enumerate(self.convs):
            xs[i] = layer(xs[i])
        if float(xs[0].sum()) != float(xs[0].sum()):
            raise ValueError("no number")
        return xs[0] + xs[1]


def list_head(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    return net.head([y, net.b(y)])


def list_is_used_afterwards(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    xs = [y, net.b(y)]
    return net.head(xs) + xs[0]


MODULES: dict[str, Hostile] = {
    "hooks that collect": Hostile(hooks_that_collect, refused="forward hook of 'a' sees is used by somebody else"),
    "stored and concatenated": Hostile(stored_and_concatenated, refused="forward of Net cannot be traced at 'c'"),
    "stored by a hook that changes": Hostile(stored_by_a_hook_that_changes_as_well, refused="forward hook of 'b' sees"),
    "a hook of the model adds features": Hostile(
        hook_of_the_model_returns_features, refused="a forward hook of the model itself returns something else"
    ),
    "a hook of the model scales": Hostile(hook_of_the_model_scales, {"0": 6}),
    "hooks that look": Hostile(hooks_that_look, {"0": 6}),
    "a plain subclass": Hostile(
        lambda: nn.Sequential(PlainConv(3, 6, 3), PlainNorm(6), nn.ReLU(), PlainConv(6, 5, 3), conv(5, 2)),
        {"0": 6, "3": 5},
    ),
    "a convolution with a child": Hostile(
        lambda: nn.Sequential(ConvWithChild(3, 6), nn.ReLU(), ConvWithChild(6, 5), conv(5, 2)), {"0": 6, "2": 5}
    ),
    "a subclass that changes what torch calls": Hostile(
        lambda: nn.Sequential(conv(3, 6), Backwards(6, 5, 1), conv(5, 2)), {"1.weight": 5}, frozen={"0": "flip moves"}
    ),
    "a hook inside of a layer": Hostile(hook_inside_of_a_layer, refused=ASTRAY),
    "layers called by keyword": Hostile(
        lambda: Net(
            lambda n, x: n.c(input=n.norm(input=n.b(input=n.a(input=x)))),
            **{"a": conv(3, 6), "b": conv(6, 5), "norm": nn.BatchNorm2d(5), "c": conv(5, 2)},
        ),
        {"a": 6, "b": 5},
    ),
    "a head that writes into its list": Hostile(
        lambda: Net(list_head, a=conv(3, 6), b=conv(6, 5), head=ListHead()),
        {},
        frozen={"a": "'head' (ListHead) has no channel rule and cannot be followed"},
    ),
    "a list that is used after it was written into": Hostile(
        lambda: Net(list_is_used_afterwards, a=conv(3, 4), b=conv(4, 5), head=ListHead(4)), refused=ASTRAY
    ),
}
