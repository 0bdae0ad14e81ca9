"""Weights that are shared, computed, or used outside of their layer stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import trace
from tests.graph.hostile import image, same, snapshot
from tests.graph.operations import Net, Refusal, check_refused, conv


def pruned_before(layer: nn.Linear) -> nn.Module:
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", 0.3)


COMPUTED = {
    "SpectralNorm": [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm],
    "Orthogonal": [nn.utils.parametrizations.orthogonal],
    "L1Unstructured": [pruned_before],
}


@pytest.mark.parametrize(("name", "make"), [(name, make) for name, makes in COMPUTED.items() for make in makes])
def test_a_computed_weight_stays_and_its_maker_is_named(name: str, make: Callable[..., nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), make(nn.Linear(5, 6)), nn.Linear(6, 7), nn.Linear(7, 2)).train()
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 4))
    assert same(before, snapshot(model))
    assert [site.name for site in graph.sites] == ["2"]
    assert f"'1.weight' is computed by {name}; make it a plain parameter first" in str(graph.frozen["1"])


SHARED = {
    "batch norm": (
        lambda: nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), conv(6, 6), nn.BatchNorm2d(6), conv(6, 2)),
        lambda m: setattr(m[3], "weight", m[1].weight),
        "'1.weight' is shared with '3.weight'; give each a parameter of its own",
    ),
    "convolutions fed by others": (
        lambda: nn.Sequential(conv(3, 6), conv(6, 6), nn.ReLU(), conv(6, 6), conv(6, 2)),
        lambda m: setattr(m[3], "weight", m[1].weight),
        "'1.weight' is shared with '3.weight'",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_tensors_stay(name: str) -> None:
    make, tie, reason = SHARED[name]
    model = make()
    tie(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert reason in str(graph.frozen["0"])
    assert graph.sites == []


def tied(n: Net, x: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(x, n.w)), n.w.t())


def raw_use_of_a_layer(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x)) + n.a.weight.sum()


def bias_elsewhere(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x)) + n.c(n.a.bias.unsqueeze(0))


@pytest.mark.parametrize("forward", [tied, raw_use_of_a_layer, bias_elsewhere], ids=lambda f: f.__name__)
def test_a_weight_that_is_used_elsewhere_stays(forward: Callable[..., Tensor]) -> None:
    w = nn.Parameter(torch.randn(6, 4))
    model = Net(forward, w=w, a=nn.Linear(4, 6), b=nn.Linear(6, 4), c=nn.Linear(6, 4)).double()
    graph = trace(model, image(2, 4))
    assert graph.sites == []


def test_a_layer_that_an_unknown_module_uses_too_stays() -> None:
    class Inner(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum() > 0 else -self.layer(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)
            self.inner = Inner(self.a)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)) + self.inner(x).sum()

    graph = trace(Outer(), torch.zeros(2, 4))
    assert graph.sites == []
    assert "'inner' (Inner) has no channel rule and cannot be followed" in str(graph.frozen["a"])


REFUSED: dict[str, Refusal] = {
    "weight with another use": (
        lambda: Net(lambda n, x: n.b(n.a(x)) + n.a.weight.square().sum(), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "'a.weight' is used by square",
    ),
    "scale with another use": (
        lambda: Net(
            lambda n, x: n.b(n.norm(n.a(x))) + n.norm.weight.abs().sum(),
            a=conv(3, 6),
            norm=nn.BatchNorm2d(6),
            b=conv(6, 2),
        ),
        (3, 5, 5),
        "'norm.weight' is used by 'norm' and elsewhere",
    ),
    "tied weights": (
        lambda: Net(lambda n, x: F.conv2d(n.b(F.relu(n.a(x))), n.a.weight), a=conv(3, 6), b=conv(6, 3)),
        (3, 5, 5),
        "'a.weight' is used by 'a' and elsewhere",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])


def test_a_shared_parameter_is_frozen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    graph = trace(model, torch.zeros(1, 4))
    assert graph.sites == []
    assert set(graph.frozen) == {"0", "2", "4"}
