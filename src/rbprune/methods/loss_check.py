"""The loss of a network on some batches that are always the same, in nats per example: what a cut is measured by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.bayes.explained import explained_nats
from rbprune.bayes.likelihood import Likelihood, Location
from rbprune.utils.finite import check_finite
from rbprune.utils.inputs import call
from rbprune.utils.modes import batch_normalising, evaluating


@dataclass(frozen=True)
class LossCheck:
    """Some batches of (inputs, targets) and the loss on them."""

    batches: Sequence[tuple[Any, Any]]
    loss_fn: Callable[[Any, Any], Tensor]
    likelihood: Likelihood

    def losses(self, model: nn.Module, *, batch_statistics: bool = False) -> Tensor:
        """The mean loss of each batch in nats per example, in evaluation mode; with ``batch_statistics`` batch
        normalisation takes those of each batch, as in training."""
        with batch_normalising(model) if batch_statistics else evaluating(model):
            return self._look(model)[0]

    def look(self, model: nn.Module) -> tuple[float, float | None]:
        """The mean loss, and how much the network explains, both in nats per example; refused where it is no number."""
        with evaluating(model):
            losses, explained = self._look(model, explains=True)
        known = [nats for nats in explained if nats is not None]
        return float(losses.mean()), sum(known) / len(known) if known else None

    def _look(self, model: nn.Module, *, explains: bool = False) -> tuple[Tensor, list[float | None]]:
        losses: list[Tensor] = []
        explained: list[float | None] = []
        with torch.no_grad():
            for number, (inputs, targets) in enumerate(self.batches):
                outputs = call(model, inputs)
                loss = self.loss_fn(outputs, targets).detach().double().cpu()
                if explains:
                    check_finite(float(loss), inputs, f"training batch {number}")
                    explained.append(explained_nats(self.likelihood, outputs, targets))
                if isinstance(self.likelihood, Location):
                    loss = loss / self.likelihood.loss_per_nat(outputs)
                losses.append(loss)
        return torch.stack(losses), explained
