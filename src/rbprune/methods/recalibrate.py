"""Batch-normalisation statistics of a network that has just been cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rbprune.utils.inputs import call
from rbprune.utils.modes import evaluating


def recalibrate(model: nn.Module, batches: Iterable[Any]) -> int:
    """Replace running statistics by averages over ``batches`` of inputs; returns how many batches there were.

    Everything else keeps its mode, so dropout stays as it was; with no batch nothing changes.
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
                    call(model, inputs)
                    count += 1
        finally:
            for norm, momentum, state in zip(norms, momenta, saved, strict=True):
                norm.momentum = momentum
                if not count:
                    norm.load_state_dict(state)
    return count
