"""Sparse structure selection: exact zeros, whole blocks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune import Price, Pruner, models
from rbprune.errors import ConfigError, UnprunableError
from rbprune.methods.dds import AcceleratedProximal, DDSBlocksStage
from tests.networks import pruner, tiny_cnn


def test_dds_reaches_exact_zeros_and_keeps_what_the_loss_needs() -> None:
    scale = nn.Parameter(torch.ones(4))
    optimizer = AcceleratedProximal([scale], lr=0.05, gamma=0.2)
    wanted = torch.tensor([1.0, 0.05, 0.6, 0.0])
    for _ in range(400):
        optimizer.zero_grad()
        (scale - wanted).square().sum().div(2).backward()
        optimizer.step()
    assert scale.detach()[[1, 3]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(scale.detach()[[0, 2]], torch.tensor([0.8, 0.4]), rtol=1e-3, atol=1e-3)


def test_dds_in_a_loop_of_ones_own_reaches_zeros_by_its_own_optimizer() -> None:
    stage = pruner("dds", tiny_cnn(), options={"gamma": 1.0}).stage(0)
    assert len(stage.param_groups(0.1, 0.1)) == 1, "plain steps would never make a scale 0"
    optimizer = stage.optimizer(0.1)
    assert optimizer is not None
    for _ in range(20):
        for parameter in stage.factors.parameters():  # type: ignore[attr-defined]
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    assert all(bool(verdict.redundant.all()) for verdict in stage.judge().values())


def test_a_dead_block_gives_exactly_nothing_and_the_others_fold_their_scale() -> None:
    torch.manual_seed(0)
    model = models.build("resnet20-cifar").eval()
    x = torch.randn(2, 3, 32, 32)
    found = Pruner(model, x, dataset_size=64, method="dds-blocks", price=Price(nats=20))
    stage = found.stage(0)
    assert isinstance(stage, DDSBlocksStage)
    assert stage.blocks == [f"layer{i}.{j}" for i, j in ((1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2))]
    with torch.no_grad():
        stage.factors.scale.uniform_(0.5, 1.5)
        stage.factors.scale[[1, 4]] = 0.0
        wanted = model(x)
        result = stage.finish(batches=[])
        torch.testing.assert_close(model(x), wanted, rtol=1e-4, atol=1e-4)
    # before branches could be removed, one channel per layer stayed as a stand-in, with a warning; now nothing does
    assert {name: after for name, (_, after) in result.channels.items() if not after} == {"layer1.1": 0, "layer2.2": 0}
    assert list(found.plan.blocks) == ["layer1.1", "layer2.2"]
    assert not any(name.startswith(("layer1.1.", "layer2.2.")) for name in model.state_dict())
    assert found.graph["layer1.0.conv1"].channels == 16
    with pytest.raises(UnprunableError, match="dds-blocks finds no residual block"):
        pruner("dds-blocks", tiny_cnn()).stage(0)


def test_dds_blocks_says_when_the_blocks_are_not_enough() -> None:
    model, x = models.build("resnet20-cifar").eval(), torch.randn(1, 3, 32, 32)
    found = Pruner(model, x, dataset_size=64, method="dds-blocks", price=Price(nats=20), macs_ratio=50.0)
    with pytest.raises(ConfigError, match="without any of the blocks whose shortcut is the identity"):
        found.stage(0).finish(batches=[])
