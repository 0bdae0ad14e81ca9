"""Whoever changes the mode of a model gives it back."""

from __future__ import annotations

import pytest
from torch import nn

from rbprune.utils.modes import evaluating, modes_kept


def mixed() -> nn.Sequential:
    """A model in training whose normalisation is frozen in evaluation mode."""
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval()))


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_every_module_gets_its_own_mode_back() -> None:
    first, second = mixed(), mixed().eval()
    before = modes(first), modes(second)
    with evaluating(first, second):
        assert not any(modes(first) + modes(second))
    assert (modes(first), modes(second)) == before
    assert before == ([True, True, True, True, False], [False] * 5)


def test_modes_come_back_after_an_error() -> None:
    model = mixed()
    before = modes(model)
    with pytest.raises(ZeroDivisionError), modes_kept(model):
        model.train()
        raise ZeroDivisionError
    assert modes(model) == before


def test_a_module_that_came_meanwhile_keeps_its_own_mode() -> None:
    model = mixed()
    with modes_kept(model):
        model.eval()
        model.append(nn.Dropout().eval())
    assert modes(model)[0] and not model[2].training
