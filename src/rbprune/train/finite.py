"""Stop at the first loss that is no number, without asking the device for one in every step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rbprune.errors import NumericalError

DEFERRED = 16
"""Steps between two checks where reading a number would make the processor wait for an accelerator."""


def check_finite(value: float, inputs: Any, where: str) -> None:
    """Stop at a loss that is no number, and say whether the data or the training is to blame."""
    if not math.isfinite(value):
        raise _error(value, bool(_all_finite(inputs)), where)


def _error(value: float, finite_inputs: bool, where: str) -> NumericalError:
    if not finite_inputs:
        return NumericalError(f"{where} contains NaN or infinity in its input; clean the data")
    return NumericalError(f"the loss is {value} at {where}; lower the learning rate (lr, rate_lr) or clean the data")


def _all_finite(inputs: Any) -> Tensor:
    tensors = [t for t in tree_leaves(inputs) if isinstance(t, Tensor) and t.is_floating_point()]
    flags = [torch.isfinite(t).all() for t in tensors]
    return torch.stack(flags).all() if flags else torch.tensor(True)


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
        self._unchecked.append((where, both, _all_finite(inputs)))
        if len(self._unchecked) >= self.every:
            self.check()

    def check(self) -> None:
        """Read what has not been read yet."""
        unchecked, self._unchecked = self._unchecked, []
        if unchecked and not all(map(math.isfinite, self._sums.tolist())):
            for where, both, finite_inputs in unchecked:
                for value in both.tolist():
                    if not math.isfinite(value):
                        raise _error(value, bool(finite_inputs), where)

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
