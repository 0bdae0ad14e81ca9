"""More networks like those in operations.py: arithmetic, statistics, and forwards that ask for classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.graph.operations import Net, conv


def by_class(net: Net, x: Tensor) -> Tensor:
    for layer in net.layers:
        x = layer(x)
        if type(layer) is nn.Conv2d and layer is net.layers[0]:
            x = x / x.norm(dim=1, keepdim=True)
    return x


ARITHMETIC: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, int]]] = {
    "outer product": (
        lambda: Net(
            lambda n, x: n.c((n.a(x).mean((2, 3)).unsqueeze(1) * n.b(x).mean((2, 3)).unsqueeze(2)).flatten(1)),
            a=conv(3, 4),
            b=conv(3, 6),
            c=nn.Linear(24, 2),
        ),
        (3, 5, 5),
        {"b": 6},
    ),
    "window over positions": (
        lambda: Net(
            lambda n, x: n.b(n.a(x) * n.w),
            a=nn.Conv1d(3, 6, 3),
            w=nn.Parameter(torch.randn(5)),
            b=nn.Conv1d(6, 2, 3),
        ),
        (3, 7),
        {"a": 6},
    ),
    "scale of rows": (
        lambda: Net(
            lambda n, x: n.b(n.w * n.a(x)), a=conv(3, 6), w=nn.Parameter(torch.randn(1, 1, 5, 1)), b=conv(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "by the exact class": (
        lambda: Net(by_class, layers=nn.ModuleList([conv(3, 8), conv(8, 6), nn.ReLU(), conv(6, 2)])),
        (3, 5, 5),
        {"layers.1": 6},
    ),
    "generalised mean": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).clamp(min=1e-3).pow(n.p).mean((2, 3)).pow(1 / n.p)),
            a=conv(3, 6),
            p=nn.Parameter(torch.tensor([3.0])),
            b=nn.Linear(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "maximum of two": (
        lambda: Net(lambda n, x: n.c(torch.max(n.a(x), n.b(x))), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "largest in space": (
        lambda: Net(
            lambda n, x: n.b((y := n.a(x).flatten(2)).max(2)[0] + y.min(dim=2).values), a=conv(3, 6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "statistics": (
        lambda: Net(
            lambda n, x: n.b(torch.cat([(y := n.a(x)).std((2, 3)), y.var((2, 3)), y.norm(dim=(2, 3))], 1)),
            a=conv(3, 6),
            b=nn.Linear(18, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "mirrored": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) + y.flip(-1) + torch.flip(y, dims=[2])), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "made like another": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) + torch.ones_like(y)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "a choice by where": (
        lambda: Net(
            lambda n, x: n.c(torch.where((y := n.a(x)) > 0, y, n.b(x).masked_fill(y > 1, 0.5))),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "between two by a gate": (
        lambda: Net(
            lambda n, x: n.c(torch.lerp(n.a(x), n.b(x), n.g(x).sigmoid()).addcmul(n.a(x), n.b(x), value=0.1)),
            a=conv(3, 6),
            b=conv(3, 6),
            g=conv(3, 1),
            c=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "shifted in space": (
        lambda: Net(
            lambda n, x: n.b((y := n.a(x)).roll(1, 2) + torch.roll(y, shifts=(1, 2), dims=(2, 3))),
            a=conv(3, 6),
            b=conv(6, 2),
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
