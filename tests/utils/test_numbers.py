from __future__ import annotations

import doctest
import math
from types import ModuleType

import pytest

from rbprune.logging import console
from rbprune.report import axis
from rbprune.utils import numbers


@pytest.mark.parametrize("module", [axis, console, numbers])
def test_docstring_examples(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted and not outcome.failed


@pytest.mark.parametrize("value", [None, "6.61", math.nan, math.inf, True, [], 10**400])
def test_what_is_no_number_is_a_dash(value: object) -> None:
    for show in (numbers.count, numbers.ratio, numbers.percent, numbers.share, numbers.decimal, numbers.duration):
        assert show(value) == numbers.DASH


def test_ticks_are_round_and_inside() -> None:
    for low, high in [(0, 1), (6.2, 16.3), (0.001, 0.0011), (-3, 3), (0, 1e9), (5, 5)]:
        values = axis.ticks(low, high)
        assert 1 <= len(values) <= 7
        assert all(low - 1e-9 <= value <= high + 1e-9 for value in values)
