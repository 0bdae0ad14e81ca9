"""Masks are put on by hooks and leave nothing behind."""

from __future__ import annotations

import torch
from torch import nn

from rbprune.graph.cutting.masking import multiply_input, multiply_output


def test_inputs_and_outputs_are_multiplied_until_it_is_undone() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU()), torch.randn(2, 3, 4, 4)
    wanted, factors = model(x), torch.tensor([1.0, 0.0, 2.0])
    scaled = model(x * factors.view(3, 1, 1))
    undo = multiply_input(model, dict(model.named_modules()), "0", factors)
    torch.testing.assert_close(model(x), scaled)
    undo()
    undo = multiply_output(model[1], 0.5)
    torch.testing.assert_close(model(x), wanted / 2)
    undo()
    assert torch.equal(model(x), wanted)


def test_a_weight_that_a_function_uses_is_multiplied_itself() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(2, 3))
    undo = multiply_input(model, {"": model}, "weight", torch.tensor([1.0, 0.0, 2.0]))
    assert model.weight.tolist() == [[1.0, 0.0, 2.0]] * 2
    undo()
    assert model.weight.tolist() == [[1.0] * 3] * 2
