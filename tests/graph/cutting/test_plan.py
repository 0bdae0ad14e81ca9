"""Plans: written, read, and put together."""

from __future__ import annotations

import json

import pytest

from rbprune import Plan
from rbprune.errors import ModelError
from rbprune.graph.cost import LayerCost
from rbprune.graph.cutting.plan import RemovedBlock


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', "not json", '{"version": 1, "tensors": {}}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="not a pruning plan"):
        Plan.from_json(text)


def test_a_newer_plan_is_refused() -> None:
    with pytest.raises(ModelError, match="version 3 is unknown.*upgrade"):
        Plan.from_json('{"version": 3, "tensors": {}, "widths": {}, "sites": {}}')


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


def test_plans_with_blocks_have_a_version_of_their_own_and_older_ones_still_load() -> None:
    plain = Plan({"a.weight": {"0": [1]}}, {"a": {"out": 1}}, {})
    assert json.loads(plain.to_json())["version"] == 1, "what older versions read"
    assert "blocks" not in json.loads(plain.to_json())
    block = RemovedBlock({"layer1.1": ["post"]}, [LayerCost("layer1.1.conv1", "conv", 1000, 10)])
    plan = Plan(blocks={"layer1.1": block})
    assert json.loads(plan.to_json())["version"] == 2
    assert Plan.from_json(plan.to_json()) == plan
    old = json.dumps({"version": 1, "tensors": {}, "widths": {}, "sites": {}})
    assert Plan.from_json(old) == Plan()


@pytest.mark.parametrize("block", [{}, 3, {"modules": {"a": "relu"}, "layers": []}, {"modules": {}, "layers": [{}]}])
def test_a_block_that_is_none_is_refused_by_name(block: object) -> None:
    text = json.dumps({"version": 2, "tensors": {}, "widths": {}, "sites": {}, "blocks": {"layer1.1": block}})
    with pytest.raises(ModelError, match=r"the plan is damaged: blocks, 'layer1.1'.*copy plan.json anew"):
        Plan.from_json(text)


def test_what_lay_in_a_removed_block_is_no_longer_in_the_plan_of_both_cuts() -> None:
    first = Plan({"b.conv.weight": {"0": [1, 2]}, "b.post.weight": {"0": [0, 2]}}, {}, {"b.conv": {"kept": [1, 2]}})
    second = Plan({"b.post.weight": {"0": [1]}}, {}, {}, {"b": RemovedBlock({"b": ["post"]})})
    both = first.then(second, {})
    assert both.tensors == {"b.post.weight": {"0": [2]}}
    assert both.sites == {}
    assert list(both.blocks) == ["b"]
