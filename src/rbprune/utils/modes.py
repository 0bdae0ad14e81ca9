"""Training and evaluation mode: whoever changes it gives it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def modes_kept(*models: nn.Module) -> Iterator[None]:
    """Inside, modules may change their mode; afterwards each has its own again, whatever happened."""
    modes = {module: module.training for model in models for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Inside, the models are in evaluation mode.

    >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    >>> with evaluating(model):
    ...     model[0].training
    False
    >>> model[0].training, model[1].training
    (True, False)
    """
    with modes_kept(*models):
        for model in models:
            model.eval()
        yield
