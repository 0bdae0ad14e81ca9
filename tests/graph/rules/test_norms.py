"""Normalisation: masked == removed, in evaluation and in training, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import trace
from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv


def normalised(net: Net, x: Tensor) -> Tensor:
    norm = net.norm
    y = F.batch_norm(net.a(x), norm.running_mean, norm.running_var, norm.weight, norm.bias, net.training)
    return net.b(F.relu(y))


class Converting(nn.GroupNorm):
    """As in diffusion models: computed in another type of numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double()).type(x.dtype)


class Written(nn.GroupNorm):
    """Four groups, whatever it says."""

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, 4, self.weight, self.bias, self.eps)


NETS: dict[str, Case] = {
    "group norm": (lambda: nn.Sequential(conv(3, 8), nn.GroupNorm(4, 8), nn.SiLU(), conv(8, 2)), (3, 6, 6), {"0": 4}),
    "instance norm": (
        lambda: nn.Sequential(conv(3, 6), nn.InstanceNorm2d(6, affine=True), nn.Mish(), conv(6, 2)),
        (3, 6, 6),
        {"0": 6},
    ),
    "instance norm without parameters": (
        lambda: nn.Sequential(conv(3, 6), nn.InstanceNorm2d(6), conv(6, 2)),
        (3, 6, 6),
        {"0": 6},
    ),
    "raw batch norm": (
        lambda: Net(normalised, a=conv(3, 6), norm=nn.BatchNorm2d(6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "group norm as a function, with the number of groups from the channels": (
        lambda: Net(
            lambda n, x: n.b(F.silu(F.group_norm(y := n.a(x), y.size(1) // 2, n.weight, n.bias))),
            **{"a": conv(3, 8), "b": conv(8, 2)},
            weight=nn.Parameter(torch.randn(8)),
            bias=nn.Parameter(torch.randn(8)),
        ),
        (3, 6, 6),
        {"a": 4},
    ),
    "group norm as a function, without parameters, of every channel": (
        lambda: Net(lambda n, x: n.b(F.group_norm(y := n.a(x), y.shape[1])), a=conv(3, 6), b=conv(6, 2)),
        (3, 6, 6),
        {"a": 6},
    ),
    "group norm in another type of numbers": (
        lambda: nn.Sequential(conv(3, 8), Converting(4, 8), nn.SiLU(), conv(8, 2)),
        (3, 6, 6),
        {"0": 4},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


REFUSED: dict[str, Refusal] = {
    "group norm as a function": (
        lambda: Net(lambda n, x: n.b(F.group_norm(n.a(x), 2)), a=conv(3, 6), b=conv(6, 2)),
        (3, 6, 6),
        "group_norm normalises over groups of channels, whose number is written",
    ),
    "layer norm over channels": (
        lambda: Net(
            lambda n, x: n.b(n.norm(n.a(x).permute(0, 2, 3, 1))), a=conv(3, 6), norm=nn.LayerNorm(6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        "'norm' (LayerNorm) normalises over channels",
    ),
    "one group": (
        lambda: nn.Sequential(conv(3, 6), nn.GroupNorm(1, 6), conv(6, 2)),
        (3, 5, 5),
        "'1' (GroupNorm) normalises over channels",
    ),
    "group norm as a function, with a number of groups from elsewhere": (
        lambda: Net(lambda n, x: n.b(F.group_norm(n.a(x), x.size(1))), a=conv(3, 6), b=conv(6, 2)),
        (3, 6, 6),
        "group_norm normalises over groups of channels, whose number is written",
    ),
    "group norm with a parameter that is computed": (
        lambda: Net(
            lambda n, x: n.b(F.group_norm(y := n.a(x), y.size(1) // 2, torch.ones(6))), a=conv(3, 6), b=conv(6, 2)
        ),
        (3, 6, 6),
        "group_norm with parameters that are computed",
    ),
    "group norm of a subclass with a written number of groups": (
        lambda: nn.Sequential(conv(3, 8), Written(4, 8), conv(8, 2)),
        (3, 6, 6),
        "group_norm normalises over groups of channels, whose number is written",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])


def test_a_batch_norm_with_a_forward_of_its_own_is_left_as_it_was() -> None:
    class Counting(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.num_batches_tracked.add_(1)
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training)

    Counting.__module__ = "elsewhere"
    model = nn.Sequential(conv(3, 6), Counting(6), conv(6, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = trace(model, torch.randn(2, 3, 5, 5))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    graph.remove({"0": [1, 2]})
    assert model[1].num_features == 4
    assert model(torch.randn(2, 3, 5, 5)).shape == (2, 2, 5, 5)
