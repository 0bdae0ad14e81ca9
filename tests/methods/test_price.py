"""Prices in nats."""

from __future__ import annotations

import pytest
import torch

from rbprune import Price, models, trace
from rbprune.errors import ConfigError
from rbprune.methods.price import MIN_NATS
from rbprune.settings.recipe import load_recipe


def test_macs_of_a_channel_are_its_filter_and_its_columns() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    assert graph.macs() == 20 * 25 * 24**2 + 50 * 20 * 25 * 8**2 + 800 * 500 + 500 * 10
    first, second, third = graph.sites
    assert graph.macs_per_channel(first) == 25 * 24**2 + 50 * 25 * 8**2
    assert graph.macs_per_channel(second) == 20 * 25 * 8**2 + 16 * 500
    assert graph.macs_per_channel(third) == 800 + 10
    before = graph.macs()
    per_channel = graph.macs_per_channel(second)
    graph.remove({"conv2": [3]})
    assert before - graph.macs() == per_channel, "the price is about what really disappears"


def test_the_price_follows_the_network_as_it_is_now() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    price = Price(nats_per_mmac=60_000).resolve(graph, 1000)
    before = price.of(graph, graph["conv2"])
    graph.remove({"conv1": range(10)})
    after = price.of(graph, graph["conv2"])
    assert float(before[0]) == pytest.approx(60_000 * (20 * 25 * 64 + 16 * 500) / 1e6)
    assert float(after[0]) == pytest.approx(60_000 * (10 * 25 * 64 + 16 * 500) / 1e6)


def test_a_cheap_channel_still_pays_the_papers_price() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    assert Price(nats_per_mmac=1).resolve(graph, 1000).of(graph, graph["fc1"]).tolist() == [MIN_NATS] * 500
    assert Price(nats=3).resolve(graph, 1000).of(graph, graph["fc1"])[0] == 3


def test_nats_per_example_does_not_depend_on_size() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    price = Price(nats_per_example=2).resolve(graph, 1000)
    assert price.per_million == pytest.approx(2 * 1000 / (graph.macs() / 1e6))


def test_nats_beside_a_price_of_computation_are_the_least_price() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    price = Price(nats_per_example=2, nats=70).resolve(graph, 1000)
    dear = 2 * 1000 * graph.macs_per_channel(graph["conv1"]) / graph.macs()
    assert dear > 70
    assert float(price.of(graph, graph["conv1"])[0]) == pytest.approx(dear)
    assert price.of(graph, graph["fc1"]).tolist() == [70] * 500
    assert Price(nats_per_mmac=1, nats=3).resolve(graph, 1000).of(graph, graph["fc1"])[0] == 3, (
        "also below the paper's price"
    )


@pytest.mark.parametrize("price", [Price(nats_per_example=20, power=1.5), Price(nats_per_mmac=8722, power=1.5)])
def test_a_power_of_the_macs_leaves_the_mean_channel_at_its_price(price: Price) -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    channels = {site.name: site.channels for site in graph.sites}
    macs = {site.name: graph.macs_per_channel(site) for site in graph.sites}
    mean = sum(channels[name] * macs[name] for name in macs) / sum(channels.values())
    resolved = price.resolve(graph, 1000)
    per_mac = 20 * 1000 / graph.macs() if price.nats_per_example else 8722e-6
    for name in ("conv1", "conv2"):
        found = float(resolved.of(graph, graph[name])[0])
        assert found == pytest.approx(per_mac * mean * (macs[name] / mean) ** 1.5)
    assert resolved.of(graph, graph["fc1"])[0] == MIN_NATS, "the least price holds as well"
    graph.remove({"conv2": range(25)})
    now = graph.macs_per_channel(graph["conv1"])
    assert float(resolved.of(graph, graph["conv1"])[0]) == pytest.approx(per_mac * mean * (now / mean) ** 1.5)


def test_a_power_of_one_changes_nothing() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    for site in graph.sites:
        plain, same = (Price(nats_per_example=20, power=p).resolve(graph, 1000).of(graph, site) for p in (None, 1))
        torch.testing.assert_close(plain, same)


def test_a_price_may_follow_parameters_instead_of_macs() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    prices = Price(nats_per_mparam=50_000).resolve(graph, 1000)
    assert float(prices.of(graph, graph["fc1"])[0]) == pytest.approx(50_000 * (800 + 10) / 1e6)
    assert float(prices.of(graph, graph["conv2"])[0]) == pytest.approx(50_000 * (20 * 25 + 16 * 500) / 1e6)
    assert prices.of(graph, graph["conv1"])[0] == pytest.approx(50_000 * (25 + 50 * 25) / 1e6)


def test_a_power_is_beside_a_price_that_follows_macs() -> None:
    with pytest.raises(ConfigError, match="power says how a price follows a cost"):
        Price(nats=20, power=2)
    with pytest.raises(ConfigError, match="power says how a price follows a cost"):
        load_recipe("demo", ["prune.price={nats=20, power=2}"])
    found = load_recipe("demo", ["prune.price={nats_per_example=2, power=1.5}"]).prune.price
    assert found == Price(nats_per_example=2, power=1.5)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"nats_per_example": 1, "nats_per_mmac": 2},
        {"nats": -1},
        {"nats_per_example": 0.0},
        {"nats_per_mmac": 1, "nats": 0},
        {"nats_per_mmac": 1, "power": 0},
    ],
)
def test_a_price_is_one_positive_number_and_perhaps_a_least_one(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"a price is one of|greater than 0"):
        Price(**values)
