"""When a stage is over: the rates have stopped moving."""

from __future__ import annotations

import torch
from torch import Tensor


class Settling:
    """Compares the rates with what they were ``interval`` steps ago.

    Settled means that since then no channel crossed the threshold and the rates moved by less than ``tolerance`` on
    average. A tolerance of 0 never settles.
    """

    def __init__(self, tolerance: float, interval: int, threshold: float) -> None:
        self.tolerance, self.interval, self.threshold = tolerance, interval, threshold
        self.before: Tensor | None = None

    def settled(self, step: int, rates: Tensor) -> bool:
        """Call after every step (counted from 1)."""
        if not self.tolerance or step % self.interval:
            return False
        before, self.before = self.before, rates.detach().clone()
        if before is None:
            return False
        still = torch.equal(before > self.threshold, self.before > self.threshold)
        return still and float((before - self.before).abs().mean()) < self.tolerance
