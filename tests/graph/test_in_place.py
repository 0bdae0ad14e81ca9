"""In-place operations, aliases and written numbers: exact, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import trace
from rbprune.errors import UnprunableError
from tests.networks import scramble

from .hostile import check_exact, image, same, snapshot
from .operations import Net, conv


def in_place_sum(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y += n.b(x)
    return n.c(y)


def add_and_read_again(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    z = y.add_(n.b(x))
    return n.c(y) + n.c(z.mul_(2))


def relu_before_the_shortcut(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.c(n.b(n.relu(y)) + y)


def number_into_places(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y[:, :, 0] = 1.5
    y[..., -1] = 0
    return n.c(y + n.b(x))


def through_a_view(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.flatten(2).mul_(n.b(x).flatten(2))
    return n.c(y)


def data_attribute(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.data.add_(n.b(x).data)
    return n.c(y)


IN_PLACE = [
    in_place_sum,
    add_and_read_again,
    relu_before_the_shortcut,
    number_into_places,
    through_a_view,
    data_attribute,
]


@pytest.mark.parametrize("forward", IN_PLACE, ids=lambda f: f.__name__)
def test_in_place_operations_are_exact(forward: Callable[..., Tensor]) -> None:
    b = conv(6, 6) if forward is relu_before_the_shortcut else conv(3, 6)
    model = scramble(Net(forward, a=conv(3, 6), b=b, c=conv(6, 2), relu=nn.ReLU(inplace=True)))
    check_exact(model, image(), sites={"a": 6})


def writes_a_number(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y[:, :2] = 0
    return n.b(y)


def writes_an_activation(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y[:, :, 0] = n.c(x)[:, :, 0]
    return n.b(y)


def copies(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.copy_(n.c(x))
    return n.b(y)


def fills_zeros(n: Net, x: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0], 6, 6, 6, dtype=x.dtype)
    y[:, :6] = n.a(x)
    return n.b(y)


def out_argument(n: Net, x: Tensor) -> Tensor:
    y, z = n.a(x), n.c(x)
    torch.add(y, 1, out=z)
    return n.b(z)


def transposes_in_place(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.transpose_(1, 2)
    return n.b(y)


def makes_a_constant(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x) * torch.linspace(1, 2, 6).view(6, 1, 1))


def written_view(n: Net, x: Tensor) -> Tensor:
    return n.fc(n.a(x).view(-1, 216))


def own_width(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x).view(-1, n.channels, 6, 6))


def written_expand(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x).expand(-1, 6, -1, -1))


def normalized_by_position(n: Net, x: Tensor) -> Tensor:
    return n.b(F.normalize(n.a(x), 2, 1))


def pooled_over_channels(n: Net, x: Tensor) -> Tensor:
    return n.b(F.max_pool2d(n.a(x).permute(0, 2, 3, 1), 3, 1, 1).permute(0, 3, 1, 2))


def size_of_a_space(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.b(y.view(y.size(0), y.size(2), 6, 6))


def unknown_operation(n: Net, x: Tensor) -> Tensor:
    return n.b(torch.fft.fft(n.a(x), dim=1).real)


REFUSED = {
    writes_a_number: "setitem selects channels by position",
    writes_an_activation: "getitem selects channels|setitem writes into channels",
    copies: "copy_ has no channel rule",
    fills_zeros: "setitem writes into channels .*; build the result by torch.cat",
    out_argument: "add with out= has no channel rule",
    transposes_in_place: "transpose_ has no channel rule",
    makes_a_constant: "mul with channels that cannot be removed",
    written_view: r"view fixes the number of channels: \(3, 216\) .*; write x.flatten\(1\)",
    own_width: "view fixes the number of channels",
    written_expand: "expand fixes the number of channels",
    normalized_by_position: "normalize runs over channels",
    pooled_over_channels: "max_pool2d does not find the channels in dimension 1",
    size_of_a_space: "view fixes the number of channels",
    unknown_operation: r"fft_fft has no channel rule .*test_in_place.py:\d+.*; teach it: rbprune.register_rule",
}


@pytest.mark.parametrize(("forward", "reason"), REFUSED.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_what_cannot_be_exact_stays_and_says_why(forward: Callable[..., Tensor], reason: str) -> None:
    model = Net(forward, a=conv(3, 6), b=conv(6, 2), c=conv(3, 6), fc=nn.Linear(216, 2))
    model.channels = 6
    if forward is not makes_a_constant:
        model.double()
    x = image().to(model.a.weight)
    before = snapshot(model)
    graph = trace(model, x)
    assert same(before, snapshot(model))
    assert "a" not in [site.name for site in graph.sites]
    with pytest.raises(UnprunableError, match=f"no site 'a'; it is frozen: .*(?:{reason})"):
        graph.remove({"a": [0]})
    assert same(before, snapshot(model))


def other_size(n: Net, x: Tensor) -> Tensor:
    y, z = n.a(x), n.c(x)
    return n.b(y.flatten(1).view(y.size(0), z.size(1), 6, 6)) + n.d(z)


def test_the_size_of_other_channels_binds_these_to_them() -> None:
    check_exact(
        scramble(Net(other_size, a=conv(3, 6), b=conv(6, 2), c=conv(3, 6), d=conv(6, 2))), image(), sites={"a": 6}
    )
