"""MACs and weights: against torch's own counter, against networks really cut, and by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rbprune import models, trace
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import COSTS, LATENCY, MACS, PARAMS, CountedCost, amount, find_cost, known_costs
from rbprune.measure.count import count_kept
from tests.graph.operations import Net, conv


class Moody(nn.Module):
    """Layers behind control flow that depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up, self.fc = conv(6, 8), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(self.up(self.conv(x)))
        return y if y.sum() > 0 else -y


class Standardised(nn.Conv2d):
    """A computed weight."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


def flops(model: nn.Module, x: Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    return counter.get_total_flops() // 2 // len(x)


NETS: dict[str, Callable[[], nn.Module]] = {
    "control flow": lambda: nn.Sequential(conv(3, 7), nn.ReLU(), conv(7, 6), Moody(), conv(6, 2)),
    "standardised": lambda: nn.Sequential(conv(3, 7), nn.ReLU(), conv(7, 6), Standardised(6, 4, 3, padding=1)),
    "groups": lambda: Net(
        lambda n, x: F.conv2d(n.b(n.a(x).relu()), n.w * 2, groups=3),  # a plain weight with groups is followed
        a=conv(3, 7),
        b=conv(7, 6),
        w=nn.Parameter(torch.randn(6, 2, 3, 3)),
    ),
    "transposed": lambda: Net(
        lambda n, x: F.conv_transpose2d(n.b(n.a(x).relu()), n.w, stride=2),
        a=conv(3, 7),
        b=conv(7, 6),
        w=nn.Parameter(torch.randn(6, 4, 2, 2)),
    ),
    "layers called by keyword": lambda: Net(
        lambda n, x: n.c(input=n.b(input=n.a(input=x)).mean((2, 3))), a=conv(3, 1), b=conv(1, 6), c=nn.Linear(6, 2)
    ),
    "a function with groups": lambda: Net(
        lambda n, x: F.conv2d(n.a(x), n.w, groups=2), a=conv(3, 8), w=nn.Parameter(torch.randn(4, 4, 3, 3))
    ),
    "computed linear": lambda: Net(
        lambda n, x: F.linear(n.b(n.a(x).relu()).mean((2, 3)), n.w * 2),
        a=conv(3, 7),
        b=conv(7, 6),
        w=nn.Parameter(torch.randn(4, 6)),
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_what_cannot_be_followed_is_counted(name: str) -> None:
    model, x = NETS[name]().eval(), torch.randn(2, 3, 5, 5)
    graph = trace(model, x)
    (site,) = graph.sites
    before = flops(model, x)
    assert graph.macs() == before
    weights = [p.numel() for n, p in model.named_parameters() if p.dim() > 1]
    assert graph.params() == sum(weights)
    assert graph.macs_without({site.name: 3}) == pytest.approx(before - 3 * graph.macs_per_channel(site))
    graph.remove({site.name: [0, 2, 3]})
    assert graph.macs() == flops(model, x)
    assert count_kept(graph).total.macs_ratio == 1


SHAPES = {"lenet5": (1, 28, 28), "resnet20-cifar": (3, 32, 32)}


def traced(name: str) -> tuple[ChannelGraph, Tensor]:
    x = torch.randn(2, *SHAPES[name])
    return trace(models.build(name).eval(), x), x


def weights(model: nn.Module) -> int:
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return sum(layer.weight.numel() for layer in layers)


@pytest.mark.parametrize("name", SHAPES)
def test_a_channel_costs_what_disappears_with_it(name: str) -> None:
    """Of every site in turn one channel goes, so that later ones are counted in a network that is already cut."""
    graph, x = traced(name)
    model = graph.model
    assert (MACS.total(graph), PARAMS.total(graph)) == (flops(model, x), weights(model))
    for site in graph.sites:
        foreseen = {cost.name: (cost.per_channel(graph, site), cost.total(graph)) for cost in (MACS, PARAMS)}
        graph.remove({site.name: [site.channels // 2]})
        for cost, counted in ((MACS, flops(model, x)), (PARAMS, weights(model))):
            one, before = foreseen[cost.name]
            assert one == pytest.approx(before - counted, rel=1e-12), site.name
            assert cost.total(graph) == counted


@pytest.mark.parametrize("name", SHAPES)
def test_what_would_be_left_is_what_is_left(name: str) -> None:
    graph, x = traced(name)
    counts = {site.name: (number * 5) % site.channels for number, site in enumerate(graph.sites, start=1)}
    for _ in range(2):  # also of a network that is already cut
        counts = {site: min(count, graph[site].channels - 1) for site, count in counts.items()}
        foreseen = [cost.without(graph, counts) for cost in (MACS, PARAMS)]
        graph.remove({site: range(count) for site, count in counts.items()})
        counted = flops(graph.model, x), weights(graph.model)
        assert foreseen == pytest.approx(counted, rel=1e-12)
        assert (MACS.total(graph), PARAMS.total(graph)) == counted


def test_without_nothing_everything_is_left() -> None:
    graph, _ = traced("lenet5")
    assert MACS.without(graph, {}) == MACS.without(graph, {"conv1": 0}) == MACS.total(graph)


def test_a_cost_of_ones_own_answers_the_same_questions() -> None:
    """Convolutions alone: a linear layer is free."""
    graph, _ = traced("lenet5")
    own = CountedCost("convs", "MACs of convolutions", lambda layer: layer.macs if layer.kind == "conv" else 0)
    assert own.total(graph) == 20 * 25 * 24**2 + 50 * 20 * 25 * 8**2
    assert own.per_channel(graph, graph["conv2"]) == 20 * 25 * 8**2
    assert own.per_channel(graph, graph["fc1"]) == 0
    assert own.without(graph, {"conv1": 10, "fc1": 400}) == own.total(graph) / 2


def test_costs_are_found_by_name() -> None:
    assert {name: find_cost(name) for name in COSTS} == {"macs": MACS, "params": PARAMS, "latency": LATENCY}
    with pytest.raises(ConfigError, match="unknown cost 'param'; did you mean 'params'.; known are macs, params, lat"):
        find_cost("param")


def test_an_amount_has_its_unit() -> None:
    assert amount(PARAMS, 430_500) == "0.43 M parameters"
    assert amount(MACS, 2_293_000.0) == "2.29 M MACs"
    assert (amount(LATENCY, 853.2), amount(LATENCY, 12_345.0)) == ("853 us", "12.3 ms")


def test_latency_is_a_cost_only_where_there_is_a_table() -> None:
    graph, _ = traced("lenet5")
    assert list(known_costs(graph)) == ["macs", "params"]
    for ask in (LATENCY.total, lambda graph: LATENCY.without(graph, {})):
        with pytest.raises(ConfigError, match=r"no table of it: write one with `rbprune calibrate MODEL --out"):
            ask(graph)
