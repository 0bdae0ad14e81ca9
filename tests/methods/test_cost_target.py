"""Cutting down to a number of MACs."""

from __future__ import annotations

import random
import re

import pytest
import torch
from torch import nn

from rbprune import models, trace
from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS, PARAMS, Cost
from rbprune.methods.cost_target import NEARLY, _Ranking, cut_to_target, equal_shares
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
    """Along the ranking, but that channels stay which fit beside a dear one that does not: no kept channel of another
    site need be below the lowest that went, only those of its own."""
    graph = trace(tiny_cnn(12), torch.zeros(1, 1, 8, 8))
    torch.manual_seed(0)
    values = {site.name: torch.rand(site.channels) for site in graph.sites}
    target = graph.macs() / 2
    ranking = _Ranking(graph, values, Target(MACS, target), least=0)
    along = ranking.cut(ranking.needed())
    lowest_gone = min(float(values[name][mask].min()) for name, mask in along.items() if mask.any())
    for name, mask in along.items():
        kept = values[name][~mask]
        assert float(kept.max()) <= lowest_gone or len(kept) == 1
    counts = {name: int(mask.sum()) for name, mask in along.items()}
    last = next(name for name, mask in along.items() if mask.any() and float(values[name][mask].min()) == lowest_gone)
    assert graph.macs_without({**counts, last: counts[last] - 1}) > target

    gone = cut_to_target(graph, values, Target(MACS, target), least=0)
    counts = {name: int(mask.sum()) for name, mask in gone.items()}
    assert graph.macs_without(counts) <= target
    for name, mask in gone.items():
        assert not (mask & ~along[name]).any(), "nothing goes that the ranking would keep"
        assert not mask.any() or float(values[name][~mask].max()) <= float(values[name][mask].min())
        if mask.any() and graph.macs_without(counts) < NEARLY * target:
            assert graph.macs_without({**counts, name: counts[name] - 1}) > target, "all that fits is spared"


def random_chain(seed: int) -> tuple[nn.Sequential, torch.Tensor]:
    """A chain of convolutions of random widths and strides: dear channels in front, cheap ones behind, or wildly."""
    draw = random.Random(seed)
    width, layers, read = draw.choice([8, 12]), [], 3
    for _ in range(draw.randint(3, 6)):
        made = draw.randint(16, 96)
        layers += [nn.Conv2d(read, made, draw.choice([1, 3, 5]), stride=draw.choice([1, 1, 2]), padding=2), nn.ReLU()]
        read = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(read, 10)), torch.zeros(
        1, 3, width, width
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cost", [MACS, PARAMS], ids=["macs", "params"])
def test_targets_are_met_within_one_percent_where_channels_are_small_enough(seed: int, cost: Cost) -> None:
    model, x = random_chain(seed)
    graph = trace(model, x)
    torch.manual_seed(seed)
    values = {site.name: torch.rand(site.channels) * random.Random(seed).uniform(0.5, 1) for site in graph.sites}
    limit = cost.total(graph) / random.Random(seed).uniform(1.3, 4)
    gone = cut_to_target(graph, values, Target(cost, limit), least=0.05)
    counts = {name: int(mask.sum()) for name, mask in gone.items()}
    left = cost.without(graph, counts)
    graph.remove({name: mask.nonzero().flatten().tolist() for name, mask in gone.items()})
    assert left == pytest.approx(cost.total(graph)) and left <= limit * (1 + 1e-9)
    spared = [cost.without(graph, {}) + cost.per_channel(graph, graph[name]) for name, n in counts.items() if n]
    smallest = min(spared) - left
    assert left >= 0.99 * limit or left + smallest > limit


@pytest.mark.parametrize(("least", "left"), [(0.0, 1), (0.1, 2), (0.25, 3), (0.3, 4)])
def test_a_cheap_layer_keeps_its_least_share_however_low_it_ranks(least: float, left: int) -> None:
    graph = trace(tiny_cnn(12), torch.zeros(1, 1, 8, 8))
    cheap = min(graph.sites, key=lambda site: graph.macs() - graph.macs_without({site.name: 1})).name
    torch.manual_seed(0)
    values = {site.name: torch.rand(site.channels) + (site.name == cheap) for site in graph.sites}
    target = 0.999 * graph.macs_without({cheap: 12 - left})
    ranking = _Ranking(graph, values, Target(MACS, target), least)
    gone = ranking.cut(ranking.needed())  # before what still fits is spared again, which may be of the cheap layer
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
