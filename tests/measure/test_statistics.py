"""Student's t against an independent computation and the printed tables."""

from __future__ import annotations

import math

import pytest
import torch

from rbprune.measure.statistics import interval, student


@pytest.mark.parametrize(
    ("freedom", "printed"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (29, 2.0452), (1000, 1.9623)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, printed: float) -> None:
    assert student(freedom) == pytest.approx(printed, abs=1e-4)


@pytest.mark.parametrize("freedom", [2, 5])
def test_the_density_within_the_quantile_is_the_level(freedom: int) -> None:
    edge = student(freedom, 0.9)
    t = torch.linspace(-edge, edge, 200_001, dtype=torch.float64)
    density = torch.distributions.StudentT(torch.tensor(float(freedom), dtype=torch.float64)).log_prob(t).exp()
    assert float(torch.trapezoid(density, t)) == pytest.approx(0.9, abs=1e-6)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    torch.manual_seed(0)
    draws = (0.3 + torch.randn(4000, 3, dtype=torch.float64)).tolist()
    covered = [abs(mean - 0.3) <= half for mean, half in map(interval, draws)]  # type: ignore[misc]
    assert sum(covered) / len(covered) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


def test_one_seed_says_nothing() -> None:
    assert interval([0.1]) is None
