"""Batch-normalisation statistics of a network that has just been cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rbprune.errors import NumericalError
from rbprune.utils import processes
from rbprune.utils.checked_calls import outputs_of
from rbprune.utils.finite import broken_numbers
from rbprune.utils.modes import evaluating


def _share_statistics(norms: list[_BatchNorm]) -> None:
    """Several processes may have seen other batches: all take the mean of their statistics."""
    if processes.world() > 1:
        for norm in norms:
            for statistic in (norm.running_mean, norm.running_var):
                assert statistic is not None
                statistic.copy_(processes.mean(statistic.clone()))


def recalibrate(model: nn.Module, batches: Iterable[Any]) -> int:
    """Replace running statistics by averages over ``batches`` of inputs; returns how many batches there were.

    Everything else keeps its mode, so dropout stays as it was; with no batch nothing changes, and statistics that are
    no numbers are refused.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not norms:
        return 0
    momenta = [module.momentum for module in norms]
    saved = [{k: v.clone() for k, v in module.state_dict().items()} for module in norms]
    count = 0
    with evaluating(model):
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None
                norm.train()
            with torch.no_grad():
                for inputs in batches:
                    outputs_of(model, inputs, "a batch for the statistics of batch normalisation")
                    count += 1
        finally:
            for norm, momentum, state in zip(norms, momenta, saved, strict=True):
                norm.momentum = momentum
                if not count:
                    norm.load_state_dict(state)
    _share_statistics(norms)
    broken = broken_numbers(model) if count else None
    if broken is not None:
        for norm, state in zip(norms, saved, strict=True):
            norm.load_state_dict(state)
        raise NumericalError(
            f"statistics of batch normalisation over {count} batches are no numbers: {broken}; look for NaN or "
            "infinity in the training inputs; the statistics of before are back"
        )
    return count
