"""Plans: refused where they do not fit."""

from __future__ import annotations

import copy

import pytest
import torch

from rbprune import Plan, apply_plan
from rbprune.errors import ModelError
from tests.networks import tiny_cnn


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', "not json", '{"version": 1, "tensors": {}}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="not a pruning plan"):
        Plan.from_json(text)


def test_a_newer_plan_is_refused() -> None:
    with pytest.raises(ModelError, match="version 2 is unknown.*upgrade"):
        Plan.from_json('{"version": 2, "tensors": {}, "widths": {}, "sites": {}}')


def test_a_plan_for_another_network_changes_nothing() -> None:
    model = tiny_cnn()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match="changes 'conv9.weight'"):
        apply_plan(model, Plan({"0.weight": {"0": [0]}, "conv9.weight": {"0": [0]}}))
    with pytest.raises(ModelError, match="keeps position 77 of '4.weight'"):
        apply_plan(model, Plan({"0.weight": {"0": [0]}, "4.weight": {"1": [77]}}))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
