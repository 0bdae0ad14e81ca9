"""Which sites, when."""

from __future__ import annotations

import pytest
import torch

from rbprune import models, trace
from rbprune.errors import ConfigError, UnprunableError
from rbprune.methods import PruningSettings, schedule_sites


def test_rbp_goes_front_to_back_over_conv_and_linear() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    assert schedule_sites(graph, PruningSettings(method="rbp")) == [["conv1"], ["conv2"], ["fc1"]]
    assert schedule_sites(graph, PruningSettings(method="ibp")) == [["conv1", "conv2", "fc1"]]
    assert schedule_sites(graph, PruningSettings(method="rbp", only=["conv2"])) == [["conv2"]]


def test_rrbp_takes_first_then_second_convolutions_and_skips_downsampling() -> None:
    graph = trace(models.build("torchvision:resnet50"), torch.zeros(1, 3, 64, 64))
    first, second = schedule_sites(graph, PruningSettings(method="rrbp"))
    assert len(first) == len(second) == 12
    assert all(name.endswith(".conv1") for name in first)
    assert all(name.endswith(".conv2") for name in second)
    assert not any(".0." in name for name in first + second)
    assert (
        len(schedule_sites(graph, PruningSettings(method="rbp"))) == 33
    )  # all 32 inside blocks, and the stem, which feeds no sum directly


def test_rrbp_on_cifar_resnet56_is_one_stage_of_25_blocks() -> None:
    graph = trace(models.build("resnet56-cifar"), torch.zeros(1, 3, 32, 32))
    (stage,) = schedule_sites(graph, PruningSettings(method="rrbp"))
    assert len(stage) == 25


def test_sums_are_never_pruned() -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    assert "conv1" not in {name for stage in schedule_sites(graph, PruningSettings(method="rbp")) for name in stage}


def test_errors_name_the_remedy() -> None:
    graph = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    with pytest.raises(ConfigError, match="unknown method 'rpb'; did you mean 'rbp'"):
        schedule_sites(graph, PruningSettings(method="rpb"))
    with pytest.raises(UnprunableError, match="needs residual blocks, try method='rbp'"):
        schedule_sites(graph, PruningSettings(method="rrbp"))
    with pytest.raises(UnprunableError, match="no site 'conv3'; did you mean 'conv"):
        schedule_sites(graph, PruningSettings(method="rbp", only=["conv3"]))
