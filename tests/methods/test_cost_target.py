"""Cutting down to a number of MACs."""

from __future__ import annotations

import re

import pytest
import torch

from rbprune import models, trace
from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS
from rbprune.methods.cost_target import cut_to_target, equal_shares
from rbprune.methods.settings import Target
from tests.networks import tiny_cnn


@pytest.mark.parametrize("name", ["resnet20-cifar", "torchvision:mobilenet_v2", "torchvision:densenet121"])
def test_macs_without_channels_are_those_that_are_left(name: str) -> None:
    graph = trace(models.build(name), torch.zeros(1, 3, 32, 32))
    counts = {site.name: site.channels // 3 for site in graph.sites}
    foreseen = graph.macs_without(counts)
    graph.remove({name: range(count) for name, count in counts.items()})
    assert foreseen == pytest.approx(graph.macs(), rel=1e-12)


def test_as_few_channels_go_as_the_target_needs() -> None:
    graph = trace(tiny_cnn(12), torch.zeros(1, 1, 8, 8))
    torch.manual_seed(0)
    values = {site.name: torch.rand(site.channels) for site in graph.sites}
    target = graph.macs() / 2
    gone = cut_to_target(graph, values, Target(MACS, target), least=0)
    lowest_gone = min(float(values[name][mask].min()) for name, mask in gone.items() if mask.any())
    for name, mask in gone.items():
        kept = values[name][~mask]
        assert float(kept.max()) <= lowest_gone or len(kept) == 1
    counts = {name: int(mask.sum()) for name, mask in gone.items()}
    assert graph.macs_without(counts) <= target
    last = next(name for name, mask in gone.items() if mask.any() and float(values[name][mask].min()) == lowest_gone)
    assert graph.macs_without({**counts, last: counts[last] - 1}) > target


@pytest.mark.parametrize(("least", "left"), [(0.0, 1), (0.1, 2), (0.25, 3), (0.3, 4)])
def test_a_cheap_layer_keeps_its_least_share_however_low_it_ranks(least: float, left: int) -> None:
    graph = trace(tiny_cnn(12), torch.zeros(1, 1, 8, 8))
    cheap = min(graph.sites, key=lambda site: graph.macs() - graph.macs_without({site.name: 1})).name
    torch.manual_seed(0)
    values = {site.name: torch.rand(site.channels) + (site.name == cheap) for site in graph.sites}
    target = 0.999 * graph.macs_without({cheap: 12 - left})
    gone = cut_to_target(graph, values, Target(MACS, target), least=least)
    kept = values[cheap][~gone[cheap]]
    assert len(kept) == left and torch.equal(kept.sort().values, values[cheap].sort().values[:left])
    assert any(mask.any() for name, mask in gone.items() if name != cheap)


def test_the_same_share_of_every_layer() -> None:
    graph = trace(models.build("vgg16-cifar"), torch.zeros(1, 3, 32, 32))
    names = [site.name for site in graph.sites]
    shares = equal_shares(graph, names, Target(MACS, graph.macs() / 3), least=0.1)
    assert max(shares.values()) - min(shares.values()) < 0.02
    counts = {name: round(share * graph[name].channels) for name, share in shares.items()}
    assert graph.macs_without(counts) == pytest.approx(graph.macs() / 3, rel=0.01)


def test_what_is_out_of_reach_is_an_error_that_says_what_is_not() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    ranks = {site.name: torch.rand(site.channels) for site in graph.sites}
    told = r"out of reach: 0.000\d* M \((.*)x fewer\) are left .* keeps 10% .*prune\.least = 0\.1"
    with pytest.raises(ConfigError, match=told) as error:
        cut_to_target(graph, ranks, Target(MACS, 10), least=0.1)
    ratio = float(re.search(told, str(error.value))[1])  # type: ignore[index]
    cut_to_target(graph, ranks, Target(MACS, graph.macs() / ratio), least=0.1)
    with pytest.raises(ConfigError):
        cut_to_target(graph, ranks, Target(MACS, graph.macs() / (ratio + 0.01)), least=0.1)
