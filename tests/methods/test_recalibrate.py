"""Batch-normalisation statistics after a cut."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.errors import NumericalError
from rbprune.methods.recalibrate import recalibrate
from tests.networks import tiny_cnn


def test_statistics_become_those_of_the_batches() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)).train()
    batches = [torch.randn(50, 3) * 4 + 1 for _ in range(6)]
    assert recalibrate(model, batches) == 6
    torch.testing.assert_close(model[1].running_mean, torch.stack([b.mean(0) for b in batches]).mean(0))
    torch.testing.assert_close(model[1].running_var, torch.stack([b.var(0) for b in batches]).mean(0))
    assert model.training
    assert model[0].training
    assert model[1].momentum == 0.1


def test_no_batch_changes_nothing() -> None:
    model = tiny_cnn().eval()
    model[1].running_mean.fill_(2)
    assert recalibrate(model, []) == 0
    assert bool((model[1].running_mean == 2).all())
    assert not model[1].training


def test_statistics_that_are_no_numbers_are_refused_and_put_back() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    broken = torch.full((4, 1, 5, 5), float("nan"))
    with pytest.raises(NumericalError, match=r"over 2 batches are no numbers: '1.running_mean' holds NaN or infinity"):
        recalibrate(model, [torch.randn(4, 1, 5, 5), broken])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
