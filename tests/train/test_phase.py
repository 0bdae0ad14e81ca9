"""Phases: which there are, their numbers, their steps."""

from __future__ import annotations

from rbprune.settings.sections import OptimSettings
from rbprune.train.phase import Phase


def test_fine_tuning_draws_the_same_numbers_however_many_phases_came_before() -> None:
    one, many = (Phase(number, "finetune", OptimSettings(epochs=1, lr=0.1)) for number in (1, 15))
    assert one.salt == many.salt
    stages = [Phase(number, "prune", OptimSettings(epochs=1, lr=0.1), number).salt for number in range(40)]
    assert len({one.salt, Phase(0, "pretrain", OptimSettings(epochs=1, lr=0.1)).salt, *stages}) == 42
