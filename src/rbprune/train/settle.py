"""When a stage is over: the rates have stopped moving."""

from __future__ import annotations

import torch
from torch import Tensor

SLOW = 0.2
CALM = 3
"""So many looks in a row must find the rates at rest."""


class Settling:
    """Compares the rates with what they were ``interval`` steps ago.

    They are at rest when no channel crossed the threshold since then and they moved by less than ``tolerance`` on
    average; a stage has settled when this was so ``CALM`` times in a row. A tolerance of 0 never settles. Rates that
    can only move by ``speed`` in a step are not at rest while they go at a fifth of that.
    """

    def __init__(self, tolerance: float, interval: int, threshold: float, *, speed: float = float("inf")) -> None:
        self.tolerance = min(tolerance, SLOW * speed * interval)
        self.interval, self.threshold = interval, threshold
        self.before: Tensor | None = None
        self.calm = 0

    def settled(self, step: int, rates: Tensor) -> bool:
        """Call after every step (counted from 1)."""
        if not self.tolerance or step % self.interval:
            return False
        before, self.before = self.before, rates.detach().clone()
        if before is None:
            return False
        crossed = not torch.equal(before > self.threshold, self.before > self.threshold)
        moved = float((before - self.before).abs().mean())
        self.calm = 0 if crossed or moved >= self.tolerance else self.calm + 1
        return self.calm >= CALM
