"""Methods by name, and one of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rbprune import Pruner, models, trace
from rbprune.errors import ConfigError, UnprunableError
from rbprune.methods import METHODS, PruningSettings, Stage, Verdict, find_method, register_method, schedule_sites
from rbprune.methods.schedule import one_by_one
from tests.networks import tiny_cnn


class EverySecond(Stage):
    """Judges by the number of a channel."""

    trains = False

    def judge(self) -> dict[str, Verdict]:
        odd = {site.name: torch.arange(site.channels) % 2 for site in self.sites}
        return {name: Verdict(value.float(), value == 1) for name, value in odd.items()}


@pytest.fixture
def every_second() -> Iterator[str]:
    register_method("every-second", EverySecond, one_by_one, "every second channel")
    yield "every-second"
    del METHODS["every-second"]


def test_a_method_of_ones_own_is_found_scheduled_and_cuts(every_second: str) -> None:
    method = find_method(every_second)
    assert (method.name, method.stage, method.skip_downsampling) == ("every-second", EverySecond, False)
    pruner = Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=10, method=every_second)
    assert pruner.stages == [["0"], ["4"], ["8"]]
    assert [stage.finish(batches=[]).channels for stage in pruner] == [{"0": (6, 3)}, {"4": (12, 6)}, {"8": (12, 6)}]
    assert pruner.graph["4"].alive.tolist() == [0, 2, 4, 6, 8, 10]


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all() -> None:
    with pytest.raises(ConfigError, match="unknown method 'thinnet'; did you mean 'thinet'") as caught:
        find_method("thinnet")
    assert str(caught.value).endswith(f"known are {', '.join(METHODS)}")


def test_every_method_has_a_line_and_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    assert [name for name, method in METHODS.items() if method.name != name or not method.summary] == []
    assert [name for name in METHODS if not re.search(rf"`{name}`", page)] == []


def test_sites_are_chosen_by_any_of_their_names_and_stay_in_the_order_of_the_network() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    assert schedule_sites(graph, PruningSettings(only=["fc1", "conv1"])) == [["conv1"], ["fc1"]]


def test_rrbp_takes_blocks_that_downsample_where_it_is_told_to() -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    (plain,), (more,) = (
        schedule_sites(graph, PruningSettings(method="rrbp", sums=False, downsampling=given)) for given in (False, True)
    )
    assert set(more) - set(plain) == {"layer2.0.conv1", "layer3.0.conv1"}
    assert set(plain) < set(more)


def test_where_nothing_can_be_pruned_the_reasons_are_told() -> None:
    graph = trace(torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.zeros(1, 3))
    with pytest.raises(UnprunableError, match=r"'rbp' finds nothing to prune in this Sequential; frozen: 0: .+"):
        schedule_sites(graph, PruningSettings())
