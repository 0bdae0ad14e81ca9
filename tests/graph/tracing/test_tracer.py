"""From a forward to a graph: control flow, random depth, forwards of instances, and errors with the line."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import models, trace
from rbprune.errors import UnprunableError
from tests.graph.hostile import check_exact, image, same, snapshot
from tests.graph.operations import Case, Net, check_operation, conv
from tests.networks import scramble


def by_class(net: Net, x: Tensor) -> Tensor:
    for layer in net.layers:
        x = layer(x)
        if type(layer) is nn.Conv2d and layer is net.layers[0]:
            x = x / x.norm(dim=1, keepdim=True)
    return x


NETS: dict[str, Case] = {
    "by the exact class": (
        lambda: Net(by_class, layers=nn.ModuleList([conv(3, 8), conv(8, 6), nn.ReLU(), conv(6, 2)])),
        (3, 5, 5),
        {"layers.1": 6},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


class Moody(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_submodule_with_control_flow_says_what_stopped_it() -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 5), Moody(), conv(5, 2)))
    graph = check_exact(model, image(), sites={"0": 6})
    reason = str(graph.frozen["2"])
    assert "'3' (Moody) has no channel rule and cannot be followed: symbolically traced variables" in reason
    assert "rbprune.register_rule(its class, rule)" in reason


def test_random_depth_by_the_models_own_dice() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = conv(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            if self.training and random.random() < 0.5:
                return x
            return x + self.f(x)

    model = scramble(nn.Sequential(conv(3, 6), Block(), Block(), Block(), conv(6, 2)))
    x = image()
    before = snapshot(model)
    trace(model, x)
    assert same(before, snapshot(model))
    check_exact(model, x, sites={"0": 6})


def by_torch_rand(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    mask = torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype) < 0.5
    keep = y.new_empty(y.size(0), 1, 1, 1).fill_(0.5)
    return n.c(y + n.b(y) * torch.rand(y.size(0), 1, 1, 1, dtype=torch.float64) * keep) + mask.sum()


def test_stochastic_depth_by_factories() -> None:
    check_exact(scramble(Net(by_torch_rand, a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))), image(), sites={"a": 6})


def test_stochastic_depth_of_torchvision() -> None:
    ops = models.import_torchvision().ops
    model = Net(
        lambda n, x: n.c(n.s(n.b(F.relu(n.a(x)))) + n.a(x)),
        a=conv(3, 6),
        b=conv(6, 6),
        c=conv(6, 2),
        s=ops.StochasticDepth(0.5, "row"),
    )
    check_exact(scramble(model), image(), sites={"a": 6})


def test_the_error_of_an_outermost_forward_names_the_line() -> None:
    with pytest.raises(
        UnprunableError, match=r"forward of Moody cannot be traced \(.*test_tracer.py:\d+\): .*submodule"
    ):
        trace(Moody(), torch.zeros(1, 3))


def test_control_flow_on_data_is_refused() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(UnprunableError, match=r"forward of Branch cannot be traced.*control flow"):
        trace(Branch(), torch.zeros(1, 3))


def test_a_forward_put_on_an_instance_is_followed() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), nn.ReLU(), conv(5, 2))
    model[1].forward = lambda x: F.conv2d(x.flip(1), model[1].weight, padding=1)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert "flip moves channels" in str(graph.frozen["0"])
