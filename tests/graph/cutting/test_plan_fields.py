"""The fields of a plan: everything that is none is refused by our own error, with the place."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

from rbprune import Plan, trace
from rbprune.errors import ModelError
from rbprune.graph.cutting.plan_fields import check_fields, checksum
from tests.graph.cutting.mutations import mutated
from tests.networks import tiny_cnn


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tensors": []}, r"tensors: \[\] is no table"),
        ({"tensors": {"a": [0]}}, r"tensors, 'a': \[0\] is no table"),
        ({"tensors": {"a": {"-1": [0]}}}, "dimension '-1': a dimension is a number from 0 on"),
        ({"tensors": {"a": {" 1": [0]}}}, "a dimension is a number from 0 on"),
        ({"tensors": {"a": {"0": [-1]}}}, "-1 is no position"),
        ({"tensors": {"a": {"0": [2**40]}}}, "1099511627776 is no position"),
        ({"tensors": {"a": {"0": [True]}}}, "True is no position"),
        ({"tensors": {"a": {"0": [1.0]}}}, "1.0 is no position"),
        ({"tensors": {"a": {"0": [1, 1]}}}, "position 1 follows 1"),
        ({"tensors": {"a": {"0": [3, 1]}}}, "position 1 follows 3"),
        ({"tensors": {"a": {"0": []}}}, "no position is kept"),
        ({"tensors": {"a": {"0": 1}}}, "1 is no list of positions"),
        ({"widths": {"a": {"out": 0}}}, "0 is no width"),
        ({"widths": {"a": {"out": 2**40}}}, "1099511627776 is no width"),
        ({"widths": {"a": {"out": 10**400}}}, "a number of more than 30 digits is no width"),
        ({"widths": {"a": 3}}, "widths, 'a': 3 is no table"),
        ({"sites": {"a": {"kept": [0]}}}, "it has 'channels' and 'kept'"),
        ({"sites": {"a": {"channels": "3", "kept": [0]}}}, "'3' is no number of channels"),
        ({"sites": {"a": {"channels": 3, "kept": [3]}}}, "channel 3 is kept of 3"),
    ],
)
def test_what_no_plan_holds_is_refused_with_its_place(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=rf"the plan is damaged: .*{message}.*copy plan.json anew"):
        check_fields(fields)


def test_the_checksum_is_of_the_content_not_of_the_writing() -> None:
    assert checksum({"a": 1, "b": [1, 2]}) == checksum({"b": [1, 2], "a": 1}) != checksum({"a": 1, "b": [2, 1]})


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_with_anything_changed_is_refused_or_the_same(seed: int) -> None:
    """A checksum notices what looks like a plan: one channel kept in place of another."""
    plan = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8)).remove({"0": [1, 3], "4": [0, 5, 11]})
    chance, refused = random.Random(seed), 0
    for _ in range(250):
        changed = json.dumps(mutated(json.loads(plan.to_json()), chance))
        try:
            assert Plan.from_json(changed) == plan
        except ModelError:
            refused += 1
    assert refused > 200


def test_a_key_that_comes_twice_is_refused() -> None:
    text = Plan({"a": {"0": [1]}}).to_json()
    with pytest.raises(ModelError, match="'version' is there twice"):
        Plan.from_json(text[:-1] + ', "version": 1}')


def test_a_changed_plan_says_what_to_do_if_it_was_on_purpose() -> None:
    text = Plan({"a": {"0": [1]}}).to_json()
    changed = text.replace("[1]", "[2]")
    with pytest.raises(ModelError, match="if you changed it on purpose, take its sha256 out"):
        Plan.from_json(changed)
    raw = json.loads(changed)
    del raw["sha256"]
    assert Plan.from_json(json.dumps(raw)) == Plan({"a": {"0": [2]}}), "as plans of before have none"


def test_nesting_without_end_is_no_plan() -> None:
    with pytest.raises(ModelError, match="not a pruning plan"):
        Plan.from_json('{"version": 1, "tensors": ' + "[" * 100_000)
