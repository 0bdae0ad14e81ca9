"""Tensors taken apart and put together: masked == removed, gradients included, or frozen with the reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv


def half(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    left, right = y.chunk(2, dim=1)
    return net.b(torch.cat([F.relu(left), right * 2], 1))


def halves_by_size(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    left, right = torch.split(y, y.size(1) // 2, dim=1)
    return net.b(left + right)


NETS: dict[str, Case] = {
    "channel shuffle module": (
        lambda: nn.Sequential(conv(3, 8), nn.ChannelShuffle(2), conv(8, 2)),
        (3, 4, 4),
        {"0": 4},
    ),
    "chunk": (lambda: Net(half, a=conv(3, 8), b=conv(8, 2)), (3, 4, 4), {"a": 4}),
    "split by size": (lambda: Net(halves_by_size, a=conv(3, 8), b=conv(4, 2)), (3, 4, 4), {"a": 4}),
    "stack and sum": (
        lambda: Net(
            lambda n, x: n.c(torch.stack([n.a(x), n.b(x)], 1).sum(1)), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "pad space": (
        lambda: Net(lambda n, x: n.b(F.pad(n.a(x), (1, 2, 0, 1))), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "pad channels": (
        lambda: Net(
            lambda n, x: n.c(F.pad(n.a(x), (0, 0, 0, 0, 1, 2)) + n.b(x)), a=conv(3, 4), b=conv(3, 7), c=conv(7, 2)
        ),
        (3, 5, 5),
        {"a": 4},
    ),
    "ellipsis": (lambda: Net(lambda n, x: n.b(n.a(x)[..., ::2, ::2]), a=conv(3, 6), b=conv(6, 2)), (3, 6, 6), {"a": 6}),
    "slice of all": (lambda: Net(lambda n, x: n.b(n.a(x)[:, :6]), a=conv(3, 6), b=conv(6, 2)), (3, 6, 6), {"a": 6}),
    "unbind": (
        lambda: Net(
            lambda n, x: n.c((y := torch.stack([n.a(x), n.b(x)], 2).sum(2)).unbind(0)[0].unsqueeze(0) + y),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space": (
        lambda: Net(
            lambda n, x: n.c(torch.cat([n.a(x), n.b(x)], 2).flatten(1)), a=conv(3, 6), b=conv(3, 6), c=nn.Linear(300, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space before a convolution": (
        lambda: Net(
            lambda n, x: n.c(torch.cat([n.a(x), n.b(x)], 3) * torch.sigmoid(n.d(torch.cat([x, x], 3)))),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
            d=conv(3, 6),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space, normalised": (
        lambda: Net(
            lambda n, x: n.c(n.norm(torch.cat([n.a(x).amax(-1), n.b(x).amax(-1)], -1).flatten(1))),
            a=conv(3, 6),
            b=conv(3, 6),
            norm=nn.BatchNorm1d(60),
            c=nn.Linear(60, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space with the input": (
        lambda: Net(
            lambda n, x: n.c(torch.cat([n.b(n.a(x)), x], 2).flatten(1)), a=conv(3, 6), b=conv(6, 3), c=nn.Linear(150, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "interleaved": (
        lambda: Net(
            lambda n, x: n.c(torch.stack([n.a(x), n.b(x)], 2).flatten(1, 2)), a=conv(3, 6), b=conv(3, 6), c=conv(12, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "stacked at the end": (
        lambda: Net(
            lambda n, x: n.c(torch.stack([n.a(x).mean((2, 3)), n.b(x).mean((2, 3))], -1).flatten(1)),
            a=conv(3, 6),
            b=conv(3, 6),
            c=nn.Linear(12, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "gated halves": (
        lambda: Net(
            lambda n, x: n.c(n.g(n.b(nn.functional.glu(n.a(x), 1)))),
            a=conv(3, 12),
            b=conv(6, 8),
            g=nn.GLU(1),
            c=conv(4, 2),
        ),
        (3, 9, 9),
        {"a": 6, "b": 4},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


REFUSED: dict[str, Refusal] = {
    "slice": (
        lambda: Net(lambda n, x: n.b(n.a(x)[:, 1:4]), a=conv(3, 6), b=conv(3, 2)),
        (3, 5, 5),
        "getitem selects channels by position",
    ),
    "written split": (
        lambda: Net(lambda n, x: n.b(n.a(x).split([2, 4], 1)[1]), a=conv(3, 6), b=conv(4, 2)),
        (3, 5, 5),
        "split selects channels by position",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])
