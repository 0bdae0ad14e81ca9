"""Optimizers and learning rates of a phase."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from rbprune.settings.sections import OptimSettings
from rbprune.train.muon import Muon


def make_optimizer(settings: OptimSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The weights' optimizer; its learning rate is set before every step."""
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if p.requires_grad]}]
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    if settings.optimizer == "muon":
        return Muon(groups, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        weight_decay=settings.weight_decay,
    )


def learning_rate(settings: OptimSettings, step: int, steps: int, steps_per_epoch: int) -> float:
    """The rate for step ``step`` of ``steps``: a linear warm-up over a share of them, then the decay.

    >>> cosine = OptimSettings(epochs=1, lr=1.0, decay="cosine", warmup=0.5)
    >>> [round(learning_rate(cosine, s, 4, 4), 2) for s in range(4)]
    [0.5, 1.0, 0.85, 0.15]
    """
    warm = settings.warmup * steps
    if step < warm:
        return settings.lr * (step + 1) / max(1.0, warm)
    progress = (step + 0.5 - warm) / max(1.0, steps - warm)
    factor = {
        "constant": 1.0,
        "linear": 1 - progress,
        "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
        "step": settings.step_factor ** (step // max(1, round(settings.step_epochs * steps_per_epoch))),
    }[settings.decay]
    return settings.lr * factor
