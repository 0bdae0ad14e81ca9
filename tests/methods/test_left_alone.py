"""Which sites a method leaves alone: with those that it judges, they are all sites, and each has its reason."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rbprune import models
from rbprune.errors import UnprunableError
from rbprune.graph import ChannelGraph, trace
from rbprune.methods import METHODS, PruningSettings
from rbprune.methods.branch_stage import schedule_stages
from rbprune.methods.left_alone import sites_left_alone
from rbprune.methods.registry import schedule_sites


def graph_of(name: str) -> ChannelGraph:
    model = models.build(name)
    return trace(model, models.example_input(name, model))


GRAPHS = {name: graph_of(name) for name in ("lenet5", "resnet20-cifar")}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("changes", [{}, {"sums": True}, {"downsampling": True}])
def test_every_site_is_judged_or_left_alone_for_a_reason(name: str, method: str, changes: dict[str, bool]) -> None:
    graph, settings = GRAPHS[name], PruningSettings(method=method, **changes)
    alone = sites_left_alone(graph, settings)
    try:
        judged = [each for stage in schedule_stages(graph, settings) for each in stage if each not in graph.branches]
    except UnprunableError:
        judged = []
    assert sorted([*judged, *alone]) == sorted(site.name for site in graph.sites)
    assert all(alone.values()), "every reason is known"


def test_each_reason_says_what_opens_the_site() -> None:
    graph = GRAPHS["resnet20-cifar"]
    alone = sites_left_alone(graph, PruningSettings(method="rrbp", sums=False))
    assert "prune.sums=true" in alone["conv1"] and "prune.downsampling=true" in alone["layer2.0.conv1"]
    opened = sites_left_alone(graph, PruningSettings(method="rrbp", sums=True, downsampling=True))
    assert opened == {}
    only = sites_left_alone(graph, PruningSettings(only=["layer1.0.conv1"]))
    assert only["layer1.1.conv1"] == "it is not among prune.only" and "layer1.0.conv1" not in only
    assert "no channels" in sites_left_alone(graph, PruningSettings(method="dds-blocks"))["layer1.0.conv1"]


def test_a_method_that_refuses_a_network_judges_no_site_of_it() -> None:
    alone = sites_left_alone(GRAPHS["lenet5"], PruningSettings(method="slimming"))
    assert alone["conv1"] == "slimming ranks by batch normalisation, and site 'conv1' has none"
    half = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 3))
    found = sites_left_alone(trace(half, torch.zeros(2, 1, 9, 9)), PruningSettings(method="slimming"))
    assert found["0"].startswith("slimming ranks by batch normalisation, and site '2' has none; choose sites")
    assert sites_left_alone(GRAPHS["resnet20-cifar"], PruningSettings(method="slimming", sums=True)) == {}


class _SumWithoutNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 2)
        self.one, self.norm, self.two = nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        out: Tensor = self.head((x + self.two(self.norm(self.one(x)).relu())).mean((2, 3)))
        return out


def test_a_sum_that_cannot_be_judged_stays_unless_it_was_asked_for() -> None:
    graph = trace(_SumWithoutNorm(), torch.zeros(2, 3, 8, 8))
    assert schedule_sites(graph, PruningSettings(method="slimming")) == [["one"]]
    assert "has none" in sites_left_alone(graph, PruningSettings(method="slimming"))["stem"]
    with pytest.raises(UnprunableError, match="'stem' has none"):
        schedule_sites(graph, PruningSettings(method="slimming", sums=True))


class _ReadByNoLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(6, 2)
        self.own = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(nn.functional.linear(self.conv(x).mean((2, 3)), self.own))


def test_a_site_that_no_module_reads_is_left_alone_by_methods_that_need_one() -> None:
    graph = trace(_ReadByNoLayer(), torch.zeros(1, 3, 8, 8))
    assert "this is read by 'own'; rbp and ibp" in sites_left_alone(graph, PruningSettings(method="cp"))["conv"]
    assert "conv" not in sites_left_alone(graph, PruningSettings())
