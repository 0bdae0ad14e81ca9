"""The time of a training step on this machine."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from rbprune.reproduce import calibrate
from rbprune.reproduce.calibrate import seconds_per_image
from rbprune.settings.recipe import load_recipe


def test_the_optimizers_time_is_shared_by_the_runs_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_recipe("demo", ["prune.batch_size=4096", "finetune.optimizer=sgd", "runtime.threads=1"])
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    plain = torch.optim.SGD.step

    def slow(self: torch.optim.SGD, closure: None = None) -> None:
        time.sleep(0.5)
        plain(self, closure)

    monkeypatch.setattr(torch.optim.SGD, "step", slow)
    monkeypatch.setattr(calibrate, "CALIBRATION_SECONDS", 0.0)
    found = seconds_per_image(config, model, torch.zeros(2, 1, 28, 28), macs=7840)
    assert 0.5 / 4096 <= found < 4 / 4096
