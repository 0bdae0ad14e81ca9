"""Networks as programs of torch.export."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
from torch import Tensor, nn

from rbprune.errors import ExportError
from rbprune.export.program import make_program, on_cpu, silence


class Pairs(nn.Module):
    """Takes two examples and no other number of them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(2, -1)


def test_a_forward_that_fixes_the_batch_is_refused_with_the_remedy_which_works() -> None:
    with pytest.raises(ExportError, match="cannot follow this Pairs with batch = dynamic.*--batch N"):
        make_program(Pairs(), torch.ones(2, 3))
    program = make_program(Pairs(), torch.ones(1, 3), 2)
    assert program.exported.module()(torch.ones(2, 3)).shape == (2, 3)


def test_the_model_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout()).double().train()
    program = make_program(model, torch.ones(1, 3, dtype=torch.float64))
    assert model.training
    assert next(model.parameters()).dtype == torch.float64
    assert next(model.parameters()).requires_grad
    assert not program.model.training
    x = torch.ones(5, 3)
    assert torch.equal(program.exported.module()(x), program.model(x))


def test_numbers_are_brought_to_float32_and_others_stay() -> None:
    given = on_cpu((torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.long), None)).args
    assert (given[0].dtype, given[1].dtype, given[2]) == (torch.float32, torch.long, None)


def test_silence_ends_even_after_an_error() -> None:
    before = logging.root.manager.disable
    with pytest.raises(KeyError), silence():
        warnings.warn("nobody sees this", stacklevel=1)
        raise KeyError
    assert logging.root.manager.disable == before
    with pytest.warns(UserWarning, match="seen"):
        warnings.warn("seen", stacklevel=1)
