"""What a sum over layers leaves out, against latencies that were made up."""

from __future__ import annotations

import random

import pytest

from rbprune.graph.latency_table import Features, Rest
from rbprune.measure.latency_fit import BOUNDS, fit_power, fit_rest


def networks(count: int, seed: int = 0) -> list[Features]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        size = draw.uniform(0.1, 1)
        uneven = draw.choice([0.0, 1.0]) * draw.uniform(0.5, 1)
        elements = size * draw.uniform(0.7, 1.3) * 1e5
        found.append(Features(5000 * size**2 * draw.uniform(0.8, 1.2), elements, uneven * elements, size**2 * 1.5e7))
    return found


def test_a_rest_that_was_made_up_is_found() -> None:
    truth = Rest(scale=0.8, per_element=0.004, per_uneven=0.003, per_weight=3e-4, cache=2.0**20, constant=-60)
    seen, new = networks(14), networks(20, seed=1)
    rest = fit_rest(seen, [truth.microseconds(each) for each in seen])
    for each in new:
        assert rest.microseconds(each) == pytest.approx(truth.microseconds(each), rel=0.1)


def test_nothing_is_made_of_layers_that_are_all() -> None:
    seen = networks(8)
    rest = fit_rest(seen, [each.layers for each in seen])
    for each in networks(8, seed=3):
        assert rest.microseconds(each) == pytest.approx(each.layers, rel=0.02)


def test_coefficients_stay_within_their_bounds() -> None:
    seen = networks(8)
    for wrong in ([10 * each.layers for each in seen], [each.layers - 0.01 * each.uneven + 1e4 for each in seen]):
        rest = fit_rest(seen, wrong)
        assert BOUNDS[0][0] <= rest.scale <= BOUNDS[0][1]
        assert rest.per_uneven >= 0 and rest.per_weight >= 0


def test_a_power_is_found_from_enough_points_and_not_made_up_from_few() -> None:
    shares = [2.0**-number for number in range(8)]
    factor, power = fit_power(shares, [3 * share**0.5 for share in shares])
    assert factor == pytest.approx(3, rel=0.05) and power == pytest.approx(0.5, rel=0.05)
    assert abs(fit_power([0.5, 0.6], [1.0, 2.0])[1]) < 0.3, "two points that lie close together"
    assert fit_power([0.001, 1.0], [1e-9, 1.0])[1] == 1.0, "no more than in proportion"
