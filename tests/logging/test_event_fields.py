from __future__ import annotations

import math

import pytest

from rbprune.logging.event_fields import as_list, as_mapping, as_numbers, as_pair, as_text


@pytest.mark.parametrize("nonsense", [None, "?", 5, math.nan, True])
def test_nonsense_becomes_empty(nonsense: object) -> None:
    assert as_mapping(nonsense) == {}
    assert as_list(nonsense) == []
    assert as_numbers(nonsense) == []
    assert as_pair(nonsense) == (None, None)


def test_what_is_there_is_read() -> None:
    assert as_mapping({"a": 1}) == {"a": 1}
    assert as_list((1, "x")) == [1, "x"]
    assert as_numbers([1, None, "2", math.inf, 3.5]) == [1.0, 3.5]
    assert as_pair([16, 9]) == (16.0, 9.0)
    assert as_pair([None, 9]) == (None, 9.0)
    assert [as_text(value) for value in (None, 3, "a", False)] == ["", "3", "a", "False"]
