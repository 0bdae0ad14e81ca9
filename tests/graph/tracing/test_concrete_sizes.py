"""Forwards that must know a size as a plain number: followed as they go for the example, and exact."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.graph.operations import Case, Net, check_operation, conv


def asserted(net: Net, x: Tensor) -> Tensor:
    assert x.shape[1] == 3, "an image"
    y = net.a(x)
    if y.shape[2] != 5:
        raise ValueError("of five rows")
    return net.b(y)


def resized(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    z = net.b(F.max_pool2d(y, 2))
    if z.shape[2:] != y.shape[2:]:
        z = F.interpolate(z, size=y.shape[2:])
    return net.c(torch.cat([y, z], 1))


def shortcut(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    z = net.b(y)
    return net.c(z + (y if y.shape == z.shape else net.sc(y)))


def alike(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    z = net.b(y)
    torch._assert(y.size(1) == z.size(1), "as many channels")
    return net.c(z + y if y.shape == z.shape else z)


def alike_by_arithmetic(net: Net, x: Tensor) -> Tensor:
    y, z = net.a(x), net.b(x)
    if y.size(1) // 2 != z.size(1) - 3:
        raise ValueError("three and three")
    return net.c(torch.cat([y, z], 1))


def star(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    b, c, *_ = y.size()
    gate = net.fc(y.view(*y.shape[:2], -1).mean(-1)).view(b, c, 1, 1)
    return net.b(y * gate.sigmoid())


def c2f(net: Net, x: Tensor) -> Tensor:
    """The block of YOLOv8."""
    y = list(net.cv1(x).chunk(2, 1))
    y.extend(m(y[-1]) for m in net.m)
    return net.cv2(torch.cat(y, 1))


def by_width(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    if y.shape[1] == 8:
        y = F.relu(y)
    return net.c(net.b(y))


def by_range(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    rows = [y[:, :, i] for i in range(y.size(2))]
    return net.b(torch.stack(rows, 2) * float(y.size(3)) + int(y.size(2) / 2))


NETS: dict[str, Case] = {
    "asserted": (lambda: Net(asserted, a=conv(3, 6), b=conv(6, 2)), (3, 5, 5), {"a": 6}),
    "resized": (lambda: Net(resized, a=conv(3, 6), b=conv(6, 4), c=conv(10, 2)), (3, 5, 5), {"a": 6, "b": 4}),
    "shortcut": (
        lambda: Net(shortcut, a=conv(3, 6), b=conv(6, 4, stride=2), c=conv(4, 2), sc=conv(6, 4, 1, stride=2)),
        (3, 5, 5),
        {},
    ),
    "alike": (lambda: Net(alike, a=conv(3, 6), b=conv(6, 6), c=conv(6, 2)), (3, 5, 5), {"a": 6}),
    "alike by arithmetic": (
        lambda: Net(alike_by_arithmetic, a=conv(3, 6), b=conv(3, 6), c=conv(12, 2)),
        (3, 5, 5),
        {},
    ),
    "through normalisation": (
        lambda: Net(
            lambda n, x: n.c(n.b(F.interpolate(n.norm(n.a(x)), size=[2 * int(x.shape[2])] * 2))),
            a=conv(3, 6),
            norm=nn.BatchNorm2d(6),
            b=conv(6, 5),
            c=conv(5, 2),
        ),
        (3, 5, 5),
        {"a": 6, "b": 5},
    ),
    "decided after normalisation": (
        lambda: Net(
            lambda n, x: n.c(y if (y := n.b(n.norm(n.a(x)))).shape[2] == 5 else x),
            a=conv(3, 6),
            norm=nn.BatchNorm2d(6),
            b=conv(6, 5),
            c=conv(5, 2),
        ),
        (3, 5, 5),
        {"a": 6, "b": 5},
    ),
    "squeezed by star": (
        lambda: Net(star, a=conv(3, 6), fc=nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6)), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6, "fc.0": 4},
    ),
    "C2f": (
        lambda: Net(
            c2f,
            cv1=conv(3, 8, 1),
            cv2=conv(16, 2, 1),
            m=nn.ModuleList([nn.Sequential(conv(4, 4), nn.ReLU(), conv(4, 4)) for _ in range(2)]),
        ),
        (3, 5, 5),
        {"cv1": 4, "m.0.0": 4, "m.0.2": 4, "m.1.0": 4, "m.1.2": 4},
    ),
    "decided by width": (lambda: Net(by_width, a=conv(3, 8), b=conv(8, 6), c=conv(6, 2)), (3, 5, 5), {"b": 6}),
    "decided by rows": (lambda: Net(by_range, a=conv(3, 6), b=conv(6, 2)), (3, 5, 5), {"a": 6}),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)
