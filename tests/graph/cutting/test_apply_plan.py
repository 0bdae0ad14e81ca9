"""Plans applied to a fresh network: refused where they do not fit, remembered where they do."""

from __future__ import annotations

import copy

import pytest
import torch

from rbprune import Plan, apply_plan, trace
from rbprune.errors import ModelError
from tests.networks import tiny_cnn


def test_a_plan_for_another_network_changes_nothing() -> None:
    model = tiny_cnn()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match="changes 'conv9.weight'"):
        apply_plan(model, Plan({"0.weight": {"0": [0]}, "conv9.weight": {"0": [0]}}))
    with pytest.raises(ModelError, match="keeps position 77 of '4.weight'"):
        apply_plan(model, Plan({"0.weight": {"0": [0]}, "4.weight": {"1": [77]}}))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_a_network_that_was_cut_by_a_plan_knows_it() -> None:
    """Cut further, it knows the way from the network as it was built."""
    x = torch.randn(3, 1, 8, 8)
    model, fresh = tiny_cnn(), tiny_cnn()
    plan = trace(model, x).remove({"0": [1, 3], "4": [0, 5, 11]})
    apply_plan(fresh, plan)
    graph = trace(fresh, x)
    graph.remove({"0": [0], "4": [2, 3]})
    whole = graph.history().plan
    assert whole.sites["0"] == {"channels": 6, "kept": [2, 4, 5]}
    assert whole.sites["4"] == {"channels": 12, "kept": [1, 2, 6, 7, 8, 9, 10]}
    assert graph.plan().sites["0"] == {"channels": 4, "kept": [1, 2, 3]}, "since the trace"
    again = apply_plan(tiny_cnn(), whole)
    again.load_state_dict(fresh.state_dict())
    assert torch.equal(again.eval()(x), fresh.eval()(x))
