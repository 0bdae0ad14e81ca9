"""Stop at the first loss that is no number, without asking the device for one in every step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rbprune.utils.finite import all_finite, check_finite, loss_error

DEFERRED = 16
"""Steps between two checks where reading a number would make the processor wait for an accelerator."""


class LossMeter:
    """Sums of loss and penalty over the steps of an epoch, kept on the device; a loss that is no number is noticed at
    once on a CPU, and elsewhere within ``every`` steps, with the batch it came from."""

    def __init__(self, device: torch.device, every: int | None = None) -> None:
        self.every = (1 if device.type == "cpu" else DEFERRED) if every is None else every
        kind = torch.float32 if device.type == "mps" else torch.float64  # which has no other
        self._sums = torch.zeros(2, dtype=kind, device=device)
        self._unchecked: list[tuple[str, Tensor, Tensor]] = []
        self.steps = 0
        self.seconds = 0.0

    def add(self, loss: Tensor, penalty: Tensor, inputs: Any, where: str) -> None:
        """Take in one step; its gradients need not be there yet."""
        both = torch.stack([loss.detach().to(self._sums), penalty.detach().to(self._sums)])
        self._sums += both
        self.steps += 1
        if self.every == 1:
            for value in both.tolist():
                check_finite(value, inputs, where)
            return
        self._unchecked.append((where, both, all_finite(inputs)))
        if len(self._unchecked) >= self.every:
            self.check()

    def check(self) -> None:
        """Read what has not been read yet."""
        unchecked, self._unchecked = self._unchecked, []
        if unchecked and not all(map(math.isfinite, self._sums.tolist())):
            for where, both, finite_inputs in unchecked:
                for value in both.tolist():
                    if not math.isfinite(value):
                        raise loss_error(value, bool(finite_inputs), where)

    def means(self) -> tuple[float, float]:
        """Mean loss and mean penalty of the epoch so far."""
        self.check()
        loss, penalty = self._sums.tolist()
        return loss / self.steps, penalty / self.steps

    def reset(self) -> None:
        """A new epoch begins."""
        self.check()
        self._sums.zero_()
        self.steps, self.seconds = 0, 0.0

    def values(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        self.check()
        return {"sums": self._sums.tolist(), "steps": self.steps, "seconds": self.seconds}

    def restore(self, values: dict[str, Any]) -> None:
        """Take up what ``values`` gave."""
        self._sums.copy_(torch.tensor(values["sums"], dtype=self._sums.dtype))
        self.steps, self.seconds = values["steps"], values["seconds"]
