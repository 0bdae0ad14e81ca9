"""Learning rates and optimizers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rbprune.settings.sections import OptimSettings
from rbprune.train.optim import learning_rate


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
