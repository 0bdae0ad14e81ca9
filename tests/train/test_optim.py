"""Learning rates and optimizers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from rbprune.settings.sections import OptimSettings
from rbprune.train.optim import learning_rate, make_optimizer


def test_the_papers_finetuning_halves_every_three_epochs() -> None:
    config = OptimSettings(epochs=10, lr=1e-4, decay="step", step_epochs=3, step_factor=0.5)
    rates = [learning_rate(config, epoch * 100, 1000, 100) for epoch in range(10)]
    assert rates == pytest.approx([1e-4] * 3 + [5e-5] * 3 + [2.5e-5] * 3 + [1.25e-5])


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_decay_starts_high_and_ends_near_nothing(decay: str) -> None:
    config = OptimSettings(epochs=1, lr=1.0, decay=decay, warmup=0.1)
    rates = [learning_rate(config, step, 1000, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert rates.index(max(rates)) in range(98, 102)
    assert rates[-1] < 0.002
    assert all(a >= b for a, b in pairwise(rates[101:]))


def test_a_constant_rate_is_constant_and_warms_up() -> None:
    config = OptimSettings(epochs=1, lr=0.3)
    assert {learning_rate(config, step, 10, 5) for step in range(10)} == {0.3}
    warm = OptimSettings(epochs=1, lr=0.3, warmup=0.4)
    rates = [learning_rate(warm, step, 10, 5) for step in range(10)]
    assert rates == pytest.approx([0.075, 0.15, 0.225] + [0.3] * 7)


def test_optimizers_are_those_of_the_settings() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    sgd = make_optimizer(OptimSettings(epochs=1, lr=0.1, momentum=0.8, weight_decay=0.01), model.parameters())
    assert isinstance(sgd, torch.optim.SGD)
    (group,) = sgd.param_groups
    assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.8, True, 0.01)
    assert [id(p) for p in group["params"]] == [id(p) for p in model[0].parameters()], "frozen ones are left out"
    plain = make_optimizer(OptimSettings(epochs=1, lr=0.1, momentum=0), model.parameters())
    assert not plain.param_groups[0]["nesterov"], "which needs a momentum"
    adam = make_optimizer(OptimSettings(epochs=1, lr=0.1, optimizer="adam", weight_decay=0.02), model.parameters())
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.param_groups[0]["lr"], adam.param_groups[0]["weight_decay"]) == (0.1, 0.02)
    adamw = make_optimizer(OptimSettings(epochs=1, lr=0.1, optimizer="adamw", weight_decay=0.5), model.parameters())
    before = model[0].weight.detach().clone()
    model[0].weight.grad = torch.zeros(2, 2)
    adamw.step()
    torch.testing.assert_close(model[0].weight.detach(), before * (1 - 0.1 * 0.5))
    model[0].weight.grad = None
