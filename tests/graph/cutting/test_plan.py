"""Plans: written, read, and put together."""

from __future__ import annotations

import pytest

from rbprune import Plan
from rbprune.errors import ModelError


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', "not json", '{"version": 1, "tensors": {}}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="not a pruning plan"):
        Plan.from_json(text)


def test_a_newer_plan_is_refused() -> None:
    with pytest.raises(ModelError, match="version 2 is unknown.*upgrade"):
        Plan.from_json('{"version": 2, "tensors": {}, "widths": {}, "sites": {}}')


def test_two_cuts_in_a_row_are_one() -> None:
    """Positions of the second are those that the first has left; what only one of them cut stays as it is."""
    first = Plan(
        {"a.weight": {"0": [1, 2, 5]}, "b.weight": {"1": [1, 2, 5]}},
        {"a": {"out": 3}, "b": {"in": 3}},
        {"a": {"channels": 6, "kept": [1, 2, 5]}, "b": {"channels": 4, "kept": [0, 1, 2, 3]}},
    )
    second = Plan(
        {"b.weight": {"0": [0, 3], "1": [0, 2]}, "c.weight": {"1": [0, 3]}},
        {"b": {"in": 2, "out": 2}, "c": {"in": 2}},
        {"a": {"channels": 3, "kept": [0, 2]}, "b": {"channels": 4, "kept": [0, 3]}, "c": {"channels": 2, "kept": [1]}},
    )
    counts = {"a": {"out_channels": 3, "in_channels": 1}}
    both = first.then(second, counts)
    assert both.tensors["a.weight"] == {"0": [1, 2, 5]}
    assert both.tensors["b.weight"] == {"1": [1, 5], "0": [0, 3]}
    assert both.tensors["c.weight"] == {"1": [0, 3]}
    assert both.widths == counts
    assert both.sites["a"] == {"channels": 6, "kept": [1, 5]}
    assert both.sites["b"] == {"channels": 4, "kept": [0, 3]}
    assert both.sites["c"] == {"channels": 2, "kept": [1]}
    assert first.tensors["b.weight"] == {"1": [1, 2, 5]}, "the plans themselves stay what they are"
    assert Plan.from_json(both.to_json()) == both
