"""A change of a network that fails leaves it as it was."""

from __future__ import annotations

import pytest
import torch

from rbprune import apply_plan, trace
from rbprune.graph.cutting.unchanged import unchanged_on_error
from tests.networks import tiny_cnn


def test_a_cut_is_put_back_after_an_error_and_stays_without() -> None:
    plan = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8)).remove({"0": [1, 3]})
    model = tiny_cnn().eval()
    x = torch.randn(2, 1, 8, 8)
    before, tensors = model(x), dict(model.named_parameters())
    with pytest.raises(ZeroDivisionError), unchanged_on_error(model):
        apply_plan(model, plan)
        raise ZeroDivisionError
    assert torch.equal(model(x), before)
    assert all(parameter is tensors[name] for name, parameter in model.named_parameters())
    assert "_rbprune_cuts" not in vars(model)
    with unchanged_on_error(model):
        apply_plan(model, plan)
    assert model[0].out_channels == 4
