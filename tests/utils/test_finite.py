"""A loss that is no number is told with what is to blame."""

from __future__ import annotations

import math

import pytest
import torch

from rbprune.errors import NumericalError
from rbprune.utils.finite import all_finite, broken_numbers, check_evaluated, check_finite


def test_what_is_not_finite_is_explained() -> None:
    check_finite(1.0, torch.zeros(1), "batch 0")
    with pytest.raises(NumericalError, match="batch 7 contains NaN or infinity in its input; clean the data"):
        check_finite(math.nan, torch.tensor([1.0, math.nan]), "batch 7")
    with pytest.raises(NumericalError, match="the loss is inf at batch 7; lower the learning rate"):
        check_finite(math.inf, torch.zeros(2), "batch 7")


def test_only_floating_numbers_can_be_no_numbers() -> None:
    assert bool(all_finite({"ids": torch.tensor([1, 2]), "x": [torch.zeros(2), "name"]}))
    assert bool(all_finite(torch.tensor([1])))
    assert not bool(all_finite((torch.zeros(2), torch.tensor([math.inf]))))


def test_outputs_that_are_no_numbers_are_blamed_on_what_made_them() -> None:
    model, x, y = torch.nn.Linear(2, 3), torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
    masked = torch.full((4, 3), -math.inf)
    check_evaluated(model, x, masked, y, "batch 3")
    with pytest.raises(NumericalError, match="outputs of the network on batch 3 .* so its activations overflow"):
        check_evaluated(model, x, masked * -1, y, "batch 3")
    model.bias.data[1] = math.nan
    with pytest.raises(NumericalError, match="outputs of the network on batch 3 .* 'bias' holds NaN or infinity"):
        check_evaluated(model, x, model(x), y, "batch 3")
    with pytest.raises(NumericalError, match=r"batch 3 contains NaN or infinity in its targets \(first in example 1"):
        check_evaluated(model, x, masked, torch.tensor([0.0, math.nan]), "batch 3")


def test_weights_can_be_looked_at_before_they_are_loaded() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert broken_numbers(model, weights) is None
    weights["1.running_mean"][1] = math.inf
    assert broken_numbers(model) is None
    assert broken_numbers(model, weights) == "'1.running_mean' holds NaN or infinity (1 of its 2 values)"
