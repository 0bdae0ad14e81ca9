"""Numbers that are sizes: where they only follow the channels they are no obstacle, elsewhere they must not change."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rbprune import trace
from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv


def asserting(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    torch._assert(y.size(1) == 6, "six channels")
    return net.b(y)


NETS: dict[str, Case] = {
    "size of a plane": (
        lambda: Net(
            lambda n, x: n.b(F.interpolate(F.avg_pool2d(n.a(x), 2), size=x.shape[-2:]) / x.size(2)),
            a=conv(3, 6),
            b=conv(6, 2),
        ),
        (3, 6, 6),
        {"a": 6},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


REFUSED: dict[str, Refusal] = {
    "split of space by the number of channels": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)).split(y.size(1), 2)[0]), a=conv(3, 6), b=conv(6, 2)),
        (3, 12, 12),
        "split uses the number of channels",
    ),
    "assertion on the number of channels": (
        lambda: Net(asserting, a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "_assert uses the number of channels",
    ),
    "division by the number of channels": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) * y.size(1) ** -0.5), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "mul uses the number of channels",
    ),
    "slice by the number of other channels": (
        lambda: Net(lambda n, x: n.c(n.b(x)[:, : n.a(x).size(1)]), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        "getitem uses the number of channels",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])


def test_a_number_of_channels_that_is_returned_does_not_change() -> None:
    model = Net(lambda n, x: (n.b(y := n.a(x)), y.size(1)), a=conv(3, 6), b=conv(6, 2))
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert graph.sites == []
    assert "output uses the number of channels" in str(graph.frozen["a"])
