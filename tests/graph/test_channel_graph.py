"""Masks and removal: bad requests are refused whole."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from rbprune import trace
from rbprune.errors import ModelError, UnprunableError
from tests.graph.hostile import same, snapshot
from tests.networks import tiny_cnn


def test_bad_requests_change_nothing() -> None:
    model = tiny_cnn()
    graph = trace(model, torch.zeros(1, 1, 8, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UnprunableError, match="leaves nothing"):
        graph.remove({"4": [0], "0": range(6)})
    with pytest.raises(UnprunableError, match=r"channels 0\.\.5; asked to remove 6"):
        graph.remove({"4": [0], "0": [6]})
    with pytest.raises(UnprunableError, match="no site '44'.*did you mean '4'"):
        graph.remove({"44": [0]})
    with pytest.raises(UnprunableError, match="'10'; it is frozen: the network's output"):
        graph.remove({"10": [0]})
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_an_optimizer_that_cannot_follow_is_refused() -> None:
    model, x = tiny_cnn(), torch.randn(4, 1, 8, 8)
    with pytest.raises(ModelError, match="LBFGS holds parameters where a cut cannot follow"):
        trace(model, x).remove({"0": [1]}, optimizer=torch.optim.LBFGS(model.parameters()))
    assert model[0].out_channels == 6


def test_a_model_changed_since_the_trace_is_refused_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    first, second = trace(model, torch.zeros(1, 4)), trace(model, torch.zeros(1, 4))
    first.remove({"2": [0]})
    before = snapshot(model)
    with pytest.raises(
        ModelError, match="'2.weight' has 4 positions in dimension 0, this graph knows 5.*trace it again"
    ):
        second.remove({"0": [0], "2": [0]})
    assert same(before, snapshot(model))


def test_a_mask_that_is_refused_leaves_no_hook() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    graph = trace(model, torch.zeros(1, 4))
    with (
        pytest.raises(UnprunableError, match=r"channels 0\.\.4; asked to remove -1"),
        graph.mask({"0": [0], "2": [-1]}),
    ):
        pass
    assert not any(m._forward_pre_hooks for m in model.modules())
