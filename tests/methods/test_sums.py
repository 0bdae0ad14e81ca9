"""Residual sums under every method: one factor for all readers, the price of all that goes, exact cuts, deep ratios."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev

from rbprune import Price, trace
from rbprune.bayes.likelihood import Softmax
from rbprune.graph.cost import MACS, PARAMS
from rbprune.methods.channel_factor import Gates
from rbprune.methods.curvature import curvature_slopes
from rbprune.methods.ranking import UnitFactor
from tests.methods.residual_network import SUMS, data, network


def test_the_sums_have_all_their_producers_and_readers() -> None:
    graph = trace(network(), data()[0][:1])
    assert [site.name for site in graph.sites if site.residual == "sum"] == SUMS
    assert (graph["stem"].producers, graph["stem"].consumers) == (["stem", "b"], ["a", "c", "down"])
    assert (graph["d"].producers, graph["d"].consumers) == (["d", "down"], ["head"])


@pytest.mark.parametrize("number", [0, 1])
def test_the_slopes_behind_the_evidence_are_those_of_one_factor_that_all_readers_share(number: int) -> None:
    """J^T v from the hooks on the readers against the Jacobian of a forward with the factors written out."""
    model, (x, _) = network(), data(5)
    graph = trace(model, x)
    site = graph[SUMS[number]]
    ones = torch.ones(site.channels, dtype=torch.float64)

    def outputs(theta: Tensor) -> Tensor:
        return model.with_factors(x, *(theta if number == k else None for k in range(2)))

    jacobian = jacrev(outputs)(ones)
    factors = UnitFactor(site.channels).double()
    gates = Gates(graph, [site], factors, always=True)
    z = model(x)
    torch.manual_seed(1)
    found = curvature_slopes(Softmax(), z, None, [factors.drawn])  # type: ignore[list-item]
    gates.detach()
    assert found is not None
    torch.manual_seed(1)
    direction = Softmax().direction(z.detach(), None).double()
    wanted = torch.einsum("nkc,nk->nc", jacobian, direction)
    torch.testing.assert_close(found[0].squares().double(), wanted.square().double(), rtol=1e-6, atol=1e-12)


def test_the_curvature_of_a_shared_factor_is_the_second_difference_of_the_divergence() -> None:
    """diag(J^T R J) is what KL(p(1) || p(theta)) curves by when one theta changes at all readers of a sum at once."""
    model, (x, _) = network(), data(6)
    ones, step = torch.ones(6, dtype=torch.float64), 1e-3
    jacobian = jacrev(lambda theta: model.with_factors(x, theta, None))(ones)
    p = model(x).softmax(1).detach()
    inner = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    exact = torch.einsum("nkc,nkl,nlc->c", jacobian, inner, jacobian).detach()

    def divergence(theta: Tensor) -> Tensor:
        with torch.no_grad():
            return (p * (p.log() - model.with_factors(x, theta, None).log_softmax(1))).sum()

    for channel in range(6):
        shift = step * F.one_hot(torch.tensor(channel), 6)
        second = (divergence(ones + shift) + divergence(ones - shift)) / step**2  # divergence(ones) is 0
        assert float(second) == pytest.approx(float(exact[channel]), rel=1e-3)


def test_a_channel_of_a_sum_costs_what_disappears_with_it() -> None:
    model, (x, _) = network(), data()
    whole, positions = copy.deepcopy(model), {"stem": 64, "a": 64, "b": 64, "c": 16, "d": 16, "down": 16, "head": 1}

    def counted(net: nn.Module) -> tuple[int, int]:
        weights = {name: net.get_submodule(name).weight.numel() for name in positions}  # type: ignore[union-attr, operator]
        return sum(positions[name] * count for name, count in weights.items()), sum(weights.values())

    for name in SUMS:
        graph = trace(copy.deepcopy(whole), x)
        foreseen = [cost.per_channel(graph, graph[name]) for cost in (MACS, PARAMS)]
        price = Price(nats_per_mmac=1e6, nats=1e-3).resolve(graph, 100).of(graph, graph[name])
        before = counted(graph.model)
        graph.remove({name: [1]})
        gone = [b - a for b, a in zip(before, counted(graph.model), strict=True)]
        assert foreseen == pytest.approx(gone, rel=1e-12)
        assert float(price[0]) == pytest.approx(gone[0], rel=1e-6)


def test_a_layer_that_reads_and_makes_a_sum_loses_a_row_and_a_column() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.conv, self.head = nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.stem(x)
            return self.head((y + self.conv(y)).mean((2, 3)))

    graph = trace(Plain(), torch.zeros(1, 1, 8, 8))
    (site,) = graph.sites
    assert site.residual == "sum"
    assert PARAMS.per_channel(graph, site) == 1 + (16 - 9) + 3
    assert PARAMS.without(graph, {site.name: 1}) == PARAMS.total(graph) - 11
    graph.remove({site.name: [0]})
    assert PARAMS.total(graph) == 3 + 9 + 9
