"""Views, flattening, expansion and shuffles: masked == removed, gradients included, or frozen with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv


def shuffle(x: Tensor, groups: int) -> Tensor:
    b, c, h, w = x.size()
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).contiguous().view(b, c, h, w)


def reshaped(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).permute(0, 2, 1, 3, 4).reshape(n, c, h, w)


def gate_by_size(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    s = net.fc(y.mean((2, 3))).view(y.size(0), y.size(1), 1, 1)
    return net.b(y * torch.sigmoid(s).expand_as(y))


def spread_by_size(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    return net.b(y + net.m(x).expand(-1, y.size(1), -1, -1))


def gate_by_shape(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    gate = net.fc(y.mean((2, 3))).sigmoid()
    return net.b(y * gate.unflatten(1, (-1, 1, 1)).expand(y.shape) + y.flatten(2).reshape(y.shape))


NETS: dict[str, Case] = {
    "expand and reshape to a shape": (
        lambda: Net(gate_by_shape, a=conv(3, 6), fc=nn.Linear(6, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "one map spread to a shape": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) * n.m(x).expand(y.shape)), a=conv(3, 6), m=conv(3, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "view_as and reshape_as": (
        lambda: Net(
            lambda n, x: n.b((y := n.a(x)) + y.flatten(2).view_as(y) + n.c(x).flatten(2).reshape_as(y)),
            a=conv(3, 6),
            b=conv(6, 2),
            c=conv(3, 6),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "reshaped to the shape of another": (
        lambda: Net(
            lambda n, x: n.c(n.b(x).flatten(2).view((y := n.a(x)).size())) + n.d(y),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
            d=conv(6, 2),
        ),
        (3, 5, 5),
        {"b": 6},
    ),
    "a size beside -1": (
        lambda: Net(
            lambda n, x: n.b((y := n.a(x)).view(*y.shape[:2], -1).view(y.shape[0], y.shape[1], 5, 5)),
            a=conv(3, 6),
            b=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "flatten": (
        lambda: nn.Sequential(conv(3, 6), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 5), nn.ReLU(), nn.Linear(5, 2)),
        (3, 6, 6),
        {"0": 6, "3": 5},
    ),
    "pixel shuffle": (lambda: nn.Sequential(conv(3, 16), nn.PixelShuffle(2), conv(4, 2)), (3, 4, 4), {"0": 4}),
    "pixel unshuffle": (lambda: nn.Sequential(conv(3, 4), nn.PixelUnshuffle(2), conv(16, 2)), (3, 4, 4), {"0": 4}),
    "channel shuffle by view": (
        lambda: Net(lambda n, x: n.b(shuffle(n.a(x), 2)), a=conv(3, 8), b=conv(8, 2)),
        (3, 4, 4),
        {"a": 4},
    ),
    "channel shuffle by reshape": (
        lambda: Net(lambda n, x: n.b(reshaped(n.a(x), 4)), a=conv(3, 8), b=conv(8, 2)),
        (3, 4, 4),
        {"a": 2},
    ),
    "permute and linear": (
        lambda: Net(lambda n, x: n.b(n.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "squeeze": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1)), a=conv(3, 6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "squeezed channels": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x)).squeeze(1).mean((-2, -1), keepdim=True).flatten(1)),
            a=conv(3, 6),
            b=conv(6, 3),
            c=nn.Linear(3, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "gate in the size of another": (
        lambda: Net(gate_by_size, a=conv(3, 6), fc=nn.Linear(6, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "expand to the width of another": (
        lambda: Net(spread_by_size, a=conv(3, 6), m=conv(3, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "view in the size of another": (
        lambda: Net(
            lambda n, x: n.c(n.b(x).mean((2, 3)).view(-1, (y := n.a(x)).size(1), 1, 1)) + n.d(y),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
            d=conv(6, 2),
        ),
        (3, 5, 5),
        {"b": 6},
    ),
    "unflattened into groups": (
        lambda: Net(
            lambda n, x: n.b(torch.unflatten(n.a(x), 1, (2, -1)).sum(1) + n.u(n.c(x)).mean(2)),
            a=conv(3, 12),
            c=conv(3, 12),
            u=nn.Unflatten(1, (-1, 2)),
            b=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


REFUSED: dict[str, Refusal] = {
    "reshaped to a shape of something fixed": (
        lambda: Net(lambda n, x: n.b(n.a(x).flatten(2).reshape(x.shape)), a=conv(6, 6), b=conv(6, 2)),
        (6, 5, 5),
        "reshape fixes the number of channels",
    ),
    "a shape put together": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)).view(y.shape[:2] + x.shape[2:])), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "view uses the number of channels",
    ),
    "a written width": (
        lambda: nn.Sequential(conv(3, 6), nn.Unflatten(1, (2, 3)), nn.Flatten(1, 2), conv(6, 2)),
        (3, 5, 5),
        "'1' (Unflatten) fixes the number of channels",
    ),
    "written view": (
        lambda: Net(lambda n, x: n.b(n.a(x).view(-1, 150)), a=conv(3, 6), b=nn.Linear(150, 2)),
        (3, 5, 5),
        "view fixes the number of channels",
    ),
    "expand to a part of the width of another": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).expand(-1, n.c(x).size(1) // 2, -1, -1)), a=conv(3, 6), b=conv(6, 2), c=conv(3, 12)
        ),
        (3, 5, 5),
        "expand fixes the number of channels",
    ),
    "expand_as to something fixed": (
        lambda: Net(lambda n, x: n.b(n.a(x).mean((2, 3), keepdim=True).expand_as(x)), a=conv(6, 6), b=conv(6, 2)),
        (6, 5, 5),
        "expand_as fixes the number of channels",
    ),
    "squeeze of all dimensions": (
        lambda: Net(lambda n, x: n.b(n.a(x).mean((2, 3), keepdim=True).squeeze()), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        "name the dimension",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])
