"""The standard error of a difference between two errors, against resampling."""

from __future__ import annotations

import numpy as np
import pytest

from rbprune.measure.doubt import error_difference
from rbprune.train.evaluate import Mistakes

N = 400


def made(wrong: np.ndarray, order: int = 1) -> Mistakes:
    return Mistakes(len(wrong), tuple(np.flatnonzero(wrong).tolist()), order)


@pytest.mark.parametrize("paired", [True, False])
def test_the_standard_error_is_that_of_a_bootstrap(paired: bool) -> None:
    """Examples are drawn again: the same ones for both networks where they are paired, else others."""
    generator = np.random.default_rng(0)
    hard = generator.random(N)
    before, after = hard < 0.1, (hard < 0.08) | (generator.random(N) < 0.06)
    found = error_difference(made(before), made(after, 1 if paired else 2))
    draws = generator.integers(0, N, (20_000, N))
    others = draws if paired else generator.integers(0, N, (20_000, N))
    spread = 100 * (after[draws].mean(1) - before[others].mean(1)).std()
    assert found.paired == paired
    assert found.points == pytest.approx(100 * (after.mean() - before.mean()))
    assert found.standard_error == pytest.approx(spread, rel=0.03)


def test_the_same_mistakes_leave_no_doubt_when_paired() -> None:
    wrong = np.arange(N) < 40
    same = error_difference(made(wrong), made(wrong))
    assert (same.points, same.standard_error) == (0, 0)
    assert error_difference(made(wrong), made(wrong, 2)).standard_error == pytest.approx(100 * (2 * 0.09 / N) ** 0.5)
