"""Networks that lead a trace astray: what their forward computes is not what it computes for a stand-in of a tensor.

Each is either followed as it runs, with the sites that it must have, or refused with words of the message. Those with
hooks and layers of their own are in ``hostile_modules.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.graph.hostile_modules import ASTRAY, MODULES, Hostile
from tests.graph.operations import Net, conv


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


def repeated_channels(net: Net, x: Tensor) -> Tensor:
    a, b = net.a(x), net.b(x)
    n, _, h, w = x.shape
    return net.c(torch.cat([a, a, b], 1).view(n, torch.cat([a, b, b], 1).size(1), h, w))


def repeated_channels_in_parts(net: Net, x: Tensor) -> Tensor:
    a, b = net.a(x), net.b(x)
    n, w = x.size(0), x.size(3)
    return net.c(torch.cat([a, a, b], 1).view(n, torch.cat([a, b], 1).size(1), -1, w))


NETWORKS: dict[str, Hostile] = {
    **MODULES,
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
