"""Networks that lead a trace astray: what their forward computes is not what it computes for a stand-in of a tensor.

Each is either followed as it runs, with the sites that it must have, or refused with words of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.graph.operations import Net, conv


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


def asks(question: Callable[[Any], Any], *, sizes: bool = False) -> Callable[[], nn.Module]:
    """A network that shifts its channels where the answer is yes; one that asks for sizes is traced by fx."""

    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        if sizes:
            y.size(0)
        return net.b(y.roll(1, 1) if question(y) else y)

    return lambda: Net(forward, a=conv(3, 6), b=conv(6, 2))


def counts_its_calls(is_other: Callable[[int], Any], *, sizes: bool = False) -> Callable[[], nn.Module]:
    """A network that shifts its channels in some of its calls."""
    return lambda: _counting(iter(range(1000)), is_other, sizes)  # nobody can put it back


def _counting(calls: Iterator[int], is_other: Callable[[int], Any], sizes: bool) -> nn.Module:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        if sizes:
            y.size(0)
        return net.b(y.roll(1, 1) if is_other(next(calls)) else y)

    return Net(forward, a=conv(3, 6), b=conv(6, 2))


def weights_by_the_back_door(net: Net, x: Tensor) -> Tensor:
    return net.b(net.a(x)) + sum(parameter.sum() for parameter in net.parameters())


def asks_for_sizes(forward: Callable[[Net, Tensor], Tensor]) -> Callable[[Net, Tensor], Tensor]:
    """The same forward, which also asks for sizes, and so is traced by fx."""

    def run(net: Net, x: Tensor) -> Tensor:
        x.size(0)
        return forward(net, x)

    return run


def aliased_sum(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    before = y
    y += net.c(x)
    return net.b(before)


def drops_and_asks(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    dropped = net.drop(y)
    return net.b(dropped.roll(1, 1) if dropped is y else dropped)


def goes_on(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    try:
        wide = y.size(1) > 3
    except Exception:
        wide = False
    return net.b(y.roll(1, 1) if wide else y)


def accumulates(net: Net, x: Tensor) -> Tensor:
    parts = torch.zeros(x.shape[0], 6, 6, 6, dtype=x.dtype)
    parts += net.a(x)
    return net.b(parts)


class UpSample(nn.Module):
    """As MONAI's UNets do it: the skip connection is used where it is a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.after = nn.ConvTranspose2d(6, 4, 2, 2), conv(9, 5)

    def forward(self, x: Tensor, skip: Tensor | None) -> Tensor:
        y = self.up(x)
        if skip is not None and torch.jit.isinstance(skip, torch.Tensor) and isinstance(skip, torch.Tensor):
            dimensions = len(x.shape) - 2
            padding = [0] * (dimensions * 2)
            for i in range(dimensions):
                if skip.shape[-i - 1] != y.shape[-i - 1]:
                    padding[i * 2 + 1] = 1
            return self.after(torch.cat([skip, nn.functional.pad(y, padding, "replicate")], dim=1))
        return self.after(y)


def unet(net: Net, x: Tensor) -> Tensor:
    first = net.first(x)
    return net.last(net.up(net.down(nn.functional.max_pool2d(first, 2)), first))


def by_precision(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    if y.dtype == torch.float16 or y.is_cuda or y.device.type == "meta" or not y.is_floating_point():
        y = y.roll(1, 1)
    return net.b(y.to(device=y.device, dtype=y.dtype))


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


def repeated_channels(net: Net, x: Tensor) -> Tensor:
    a, b = net.a(x), net.b(x)
    n, _, h, w = x.shape
    return net.c(torch.cat([a, a, b], 1).view(n, torch.cat([a, b, b], 1).size(1), h, w))


def repeated_channels_in_parts(net: Net, x: Tensor) -> Tensor:
    a, b = net.a(x), net.b(x)
    n, w = x.size(0), x.size(3)
    return net.c(torch.cat([a, a, b], 1).view(n, torch.cat([a, b], 1).size(1), -1, w))


ASTRAY = "is not what its forward computes"
NETWORKS: dict[str, Hostile] = {
    "hooks that collect": Hostile(hooks_that_collect, refused="forward hook of 'a' sees is used by somebody else"),
    "stored and concatenated": Hostile(stored_and_concatenated, refused="forward of Net cannot be traced at 'c'"),
    "stored by a hook that changes": Hostile(stored_by_a_hook_that_changes_as_well, refused="forward hook of 'b' sees"),
    "a hook of the model adds features": Hostile(
        hook_of_the_model_returns_features, refused="a forward hook of the model itself returns something else"
    ),
    "a hook of the model scales": Hostile(hook_of_the_model_scales, {"0": 6}),
    "hooks that look": Hostile(hooks_that_look, {"0": 6}),
    "type(x) is Tensor": Hostile(asks(lambda y: type(y) is Tensor), {}, frozen={"a": "roll moves channels"}),
    "type(x) is Tensor, and sizes": Hostile(asks(lambda y: type(y) is Tensor, sizes=True), refused=ASTRAY),
    "callable(x)": Hostile(asks(callable), {"a": 6}),
    "callable(x), and sizes": Hostile(asks(callable, sizes=True), refused=ASTRAY),
    "type in words": Hostile(asks(lambda y: "Tensor" in str(type(y))), {}, frozen={"a": "roll moves channels"}),
    "type in words, and sizes": Hostile(asks(lambda y: "Tensor" in str(type(y)), sizes=True), refused=ASTRAY),
    "is it on the meta device": Hostile(asks(lambda y: y.is_meta), {"a": 6}),
    "is dropout what it was given": Hostile(
        lambda: Net(drops_and_asks, a=conv(3, 6), drop=nn.Dropout(), b=conv(6, 2)), refused=ASTRAY
    ),
    "a forward that goes on after errors": Hostile(
        lambda: Net(goes_on, a=conv(3, 6), b=conv(6, 2)), {}, frozen={"a": "Python code uses the number of channels"}
    ),
    "isinstance, and another way": Hostile(
        asks(lambda y: isinstance(y, Tensor)), {}, frozen={"a": "roll moves channels"}
    ),
    "isinstance of torch.jit": Hostile(
        asks(lambda y: torch.jit.isinstance(y, Tensor)), {}, frozen={"a": "roll moves channels"}
    ),
    "isinstance, and no other way": Hostile(asks(lambda y: not isinstance(y, Tensor)), {"a": 6}),
    "is it a list": Hostile(asks(lambda y: isinstance(y, (list, tuple, int))), {"a": 6}),
    "a skip connection that is asked for its type": Hostile(
        lambda: Net(unet, first=conv(3, 5), down=conv(5, 6), up=UpSample(), last=conv(5, 2)),
        {"first": 5, "down": 6, "up.up": 4, "up.after": 5},
        shape=(3, 3, 7, 7),
    ),
    "precision and device": Hostile(lambda: Net(by_precision, a=conv(3, 6), b=conv(6, 2)), {"a": 6}),
    "a sum into zeros": Hostile(
        lambda: Net(accumulates, a=conv(3, 6), b=conv(6, 2)), {}, frozen={"a": "with channels that cannot be removed"}
    ),
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
    "sizes of repeated channels": Hostile(
        lambda: Net(repeated_channels, a=conv(3, 4), b=conv(3, 4), c=conv(12, 2)), {"a": 4}
    ),
    "sizes of repeated channels in parts": Hostile(
        lambda: Net(repeated_channels_in_parts, a=conv(3, 4), b=conv(3, 4), c=conv(8, 2)),
        {},
        frozen={"a": "view uses the number of channels"},
    ),
    "a parameter": Hostile(asks(lambda y: isinstance(y, nn.Parameter)), {"a": 6}),
    "parameters taken from the list of them": Hostile(
        lambda: Net(weights_by_the_back_door, a=conv(3, 6), b=conv(6, 2)),
        {},
        frozen={"a": "'a.weight' is used by sum"},
    ),
    "parameters taken from the list of them, and sizes": Hostile(
        lambda: Net(asks_for_sizes(weights_by_the_back_door), a=conv(3, 6), b=conv(6, 2)), refused=ASTRAY
    ),
    "the first call is another": Hostile(  # no call is the first any more after the trace
        counts_its_calls(lambda number: number), {}, frozen={"a": "roll moves channels"}
    ),
    "the first call is another, and sizes": Hostile(
        counts_its_calls(lambda number: number, sizes=True), refused=ASTRAY
    ),
    "every second call is another": Hostile(counts_its_calls(lambda number: number % 2), refused=ASTRAY),
    "an alias of what is added to": Hostile(
        lambda: Net(aliased_sum, a=conv(3, 6), b=conv(6, 2), c=conv(3, 6)), {"a": 6}
    ),
    "an alias of what is added to, and sizes": Hostile(
        lambda: Net(asks_for_sizes(aliased_sum), a=conv(3, 6), b=conv(6, 2), c=conv(3, 6)), refused=ASTRAY
    ),
}
