"""Stages over a model for a loop of one's own, and what is refused before they begin."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rbprune import Price, Pruner
from rbprune.errors import ConfigError
from tests.networks import pruner, stripes, tiny_cnn


def test_own_loop_ends_smaller_and_recalibrated() -> None:
    torch.manual_seed(0)
    model = tiny_cnn()
    x, y = stripes(512)
    pruner = Pruner(model, x[:2], dataset_size=512, price=Price(nats=40))
    before = pruner.graph.macs()
    names = []
    for stage in pruner:
        names.append(stage.names)
        optimizer = torch.optim.Adam(stage.param_groups(lr=3e-3, rate_lr=3e-2))
        for step in range(120):
            rows = slice(step % 8 * 64, step % 8 * 64 + 64)
            loss = F.cross_entropy(model(x[rows]), y[rows]) + stage.kl()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert names == [["0"], ["4"], ["8"]]
    assert pruner.graph.macs() < before / 2
    test_x, test_y = stripes(300, seed=1)
    assert float((model.eval()(test_x).argmax(1) == test_y).float().mean()) > 0.9
    assert pruner.plan.tensors["0.weight"]["0"] == pruner.graph["0"].alive.tolist()


def test_leaving_the_loop_takes_the_noise_off() -> None:
    model = tiny_cnn()
    for _stage in Pruner(model, torch.zeros(2, 1, 8, 8), dataset_size=10):
        break
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model[0].out_channels == 6


def test_who_must_be_told_and_who_cannot_be_told() -> None:
    with pytest.raises(ConfigError, match=r"'uniform' must be told how much to cut: set prune\.macs_ratio=2"):
        pruner("uniform", tiny_cnn())
    with pytest.raises(ConfigError, match="'rbp' decides layer by layer how much to cut"):
        pruner("rbp", tiny_cnn(), macs_ratio=2.0, rates="adam")


def test_options_are_those_of_the_method() -> None:
    with pytest.raises(ConfigError, match="options.gama is no option of 'dds'; did you mean 'gamma'.; it has: gamma"):
        pruner("dds", tiny_cnn(), options={"gama": 0.5})
    with pytest.raises(ConfigError, match="'uniform'; it has none"):
        pruner("uniform", tiny_cnn(), macs_ratio=2.0, options={"l1": 0.5})
