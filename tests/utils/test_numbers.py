from __future__ import annotations

import doctest
import math

import pytest

from rbprune.utils import numbers


def test_docstring_examples() -> None:
    outcome = doctest.testmod(numbers)
    assert outcome.attempted and not outcome.failed


@pytest.mark.parametrize("value", [None, "6.61", math.nan, math.inf, True, [], 10**400])
def test_what_is_no_number_is_a_dash(value: object) -> None:
    for show in (numbers.count, numbers.ratio, numbers.percent, numbers.share, numbers.decimal, numbers.duration):
        assert show(value) == numbers.DASH
