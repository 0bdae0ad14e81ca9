"""Latency as a cost of pruning: targets, prices, rounding, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rbprune import Price, Pruner, trace
from rbprune.errors import ConfigError
from rbprune.graph.cost import LATENCY
from rbprune.methods import METHODS, PruningSettings
from rbprune.methods.latency import use_latency
from tests.graph.test_latency_table import table_of
from tests.networks import run_stages, tiny_cnn

X = torch.zeros(1, 1, 8, 8)


@pytest.fixture
def device(tmp_path: Path) -> str:
    """A table for ``tiny_cnn(16)``, on a device with a step of 4."""
    table = table_of(trace(tiny_cnn(16), X), step=4)
    return str(table.save(tmp_path / "device.json"))


@pytest.mark.parametrize("ask", [{"latency_ratio": 2}, {"price": Price(nats_per_us=3)}, {"round_to": "device"}])
def test_without_a_table_the_command_that_writes_one_is_named(ask: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"rbprune calibrate MODEL --out device.json.*set latency = \"device.json\""):
        PruningSettings(**ask)


def test_one_ratio_only(device: str) -> None:
    with pytest.raises(ConfigError, match="macs_ratio and latency_ratio cannot both be met"):
        PruningSettings(latency=device, latency_ratio=2, macs_ratio=2)


def test_a_step_is_a_number_or_the_device_s() -> None:
    for wrong in (0, -8, "eight", 2.5):
        with pytest.raises(ConfigError, match="round_to"):
            PruningSettings(round_to=wrong)  # type: ignore[arg-type]
    assert PruningSettings(round_to=8).channel_step == 8 and PruningSettings().channel_step == 1


def test_the_table_goes_to_the_graph_and_the_step_into_the_settings(device: str) -> None:
    graph = trace(tiny_cnn(16), X)
    settings = use_latency(graph, PruningSettings(latency=device, round_to="device"))
    assert settings.round_to == settings.channel_step == 4 and graph.latency is not None
    assert use_latency(graph, PruningSettings(latency=device, round_to=8)).round_to == 8


def test_a_table_of_another_network_is_refused_by_the_pruner(device: str) -> None:
    with pytest.raises(ConfigError, match=r"prune.latency = .*device.json' was measured for another network, 'tiny'"):
        Pruner(tiny_cnn(20), X, dataset_size=10, latency=device, latency_ratio=2)


def test_a_price_per_microsecond(device: str) -> None:
    pruner = Pruner(tiny_cnn(16), X, dataset_size=100, latency=device, price=Price(nats_per_us=700, nats=1))
    graph, prices = pruner.graph, pruner._context.prices
    assert prices.cost is LATENCY
    for site in graph.sites:
        nats = prices.of(graph, site)
        assert float(nats[0]) == pytest.approx(max(1, 700 * LATENCY.per_channel(graph, site)), rel=1e-6)


RANKING = [name for name in METHODS if name not in ("rbc", "dds-blocks", "rrbp")]
"""Those that can be told how much: rbc decides layer by layer; the network has no blocks for the other two, and the
stages of rrbp are those of ibp."""


@pytest.mark.parametrize("method", RANKING)
def test_every_method_that_ranks_meets_a_latency(method: str, device: str) -> None:
    torch.manual_seed(0)
    model = tiny_cnn(16)
    only = ["0", "4"] if method == "slimming" else None  # what has batch normalisation
    settings = PruningSettings(method=method, latency=device, latency_ratio=2, round_to=2, only=only)
    pruner = Pruner(model, X, dataset_size=100, settings=settings)
    dense = LATENCY.total(pruner.graph)
    run_stages(pruner, model)
    assert dense / LATENCY.total(pruner.graph) >= 2 * (1 - 1e-9), method
