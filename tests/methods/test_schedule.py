"""Which sites, when."""

from __future__ import annotations

import pytest
import torch

from rbprune import models, trace
from rbprune.errors import ConfigError, UnprunableError
from rbprune.methods import METHODS, PruningSettings, schedule_sites
from rbprune.methods.schedule import by_depth, insides_by_depth, sums_at_once
from rbprune.methods.settings import SUMS_BY_DEFAULT


def test_rbp_goes_front_to_back_over_conv_and_linear() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    assert schedule_sites(graph, PruningSettings(method="rbp")) == [["conv1"], ["conv2"], ["fc1"]]
    assert schedule_sites(graph, PruningSettings(method="ibp")) == [["conv1", "conv2", "fc1"]]
    assert schedule_sites(graph, PruningSettings(method="rbp", only=["conv2"])) == [["conv2"]]


def test_rrbp_takes_first_then_second_convolutions_and_skips_downsampling() -> None:
    graph = trace(models.build("torchvision:resnet50"), torch.zeros(1, 3, 64, 64))
    first, second = schedule_sites(graph, PruningSettings(method="rrbp", sums=False))
    assert len(first) == len(second) == 12
    assert all(name.endswith(".conv1") for name in first)
    assert all(name.endswith(".conv2") for name in second)
    assert not any(".0." in name for name in first + second)
    assert (
        len(schedule_sites(graph, PruningSettings(method="rbp", sums=False))) == 33
    )  # all 32 inside blocks, and the stem, which feeds no sum directly


def test_rrbp_on_cifar_resnet56_is_one_stage_of_25_blocks() -> None:
    graph = trace(models.build("resnet56-cifar"), torch.zeros(1, 3, 32, 32))
    (stage,) = schedule_sites(graph, PruningSettings(method="rrbp", sums=False))
    assert len(stage) == 25


SUMS = ["conv1", "layer2.0.conv2", "layer2.0.conv2#2", "layer3.0.conv2", "layer3.0.conv2#2"]


@pytest.mark.parametrize("given", [None, False, True])
def test_sums_are_pruned_where_the_setting_or_else_the_default_says_so(given: bool | None) -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    wanted = SUMS_BY_DEFAULT if given is None else given
    for method in METHODS:
        settings = PruningSettings(method=method, sums=given)
        names = {name for stage in schedule_sites(graph, settings) for name in stage}
        assert {name for name in names if graph[name].residual == "sum"} == (set(SUMS) if wanted else set()), method


def test_in_rbp_a_sum_has_its_turn_where_it_first_appears() -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    stages = schedule_sites(graph, PruningSettings(method="rbp", sums=True))
    assert stages == [[site.name] for site in graph.sites]
    assert stages[:2] == [["conv1"], ["layer1.0.conv1"]]


@pytest.mark.parametrize("downsampling", [False, True])
def test_in_rrbp_all_sums_have_a_stage_of_their_own_at_the_end(downsampling: bool) -> None:
    """Also those that begin behind a shortcut with a convolution: only what lies inside of such a block is left."""
    graph = trace(models.build("torchvision:resnet50"), torch.zeros(1, 3, 64, 64))
    settings = PruningSettings(method="rrbp", sums=True, downsampling=downsampling)
    *insides, last = schedule_sites(graph, settings)
    assert insides == schedule_sites(graph, settings.changed(sums=False))
    assert last == [f"layer{k}.0.conv3" for k in (1, 2, 3, 4)]
    assert schedule_sites(graph, settings.changed(only=last)) == [last]


def test_another_order_is_a_line() -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    sums_first = [*sums_at_once(graph.sites), *insides_by_depth(graph.sites)]
    assert [site.name for site in sums_first[0]] == SUMS
    assert [*sums_first[1:], sums_first[0]] == by_depth(graph.sites)


def test_errors_name_the_remedy() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    with pytest.raises(ConfigError, match="unknown method 'rpb'; did you mean 'rbp'"):
        schedule_sites(graph, PruningSettings(method="rpb"))
    with pytest.raises(UnprunableError, match="needs residual blocks, try method='rbp'"):
        schedule_sites(graph, PruningSettings(method="rrbp"))
    with pytest.raises(UnprunableError, match="no site 'conv3'; did you mean 'conv"):
        schedule_sites(graph, PruningSettings(method="rbp", only=["conv3"]))
