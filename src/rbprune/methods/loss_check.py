"""The loss of a network on some batches that are always the same, in nats per example: what a cut is measured by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.bayes.explained import explained_nats
from rbprune.bayes.likelihood import Likelihood, Location, SecondDerivative
from rbprune.utils import processes
from rbprune.utils.checked_calls import data_loss, outputs_of
from rbprune.utils.finite import check_finite
from rbprune.utils.modes import batch_normalising, evaluating


@dataclass(frozen=True)
class LossCheck:
    """Some batches of (inputs, targets) and the loss on them; several processes may have different ones, as many each,
    and all get the mean."""

    batches: Sequence[tuple[Any, Any]]
    loss_fn: Callable[[Any, Any], Tensor]
    likelihood: Likelihood

    def losses(self, model: nn.Module, *, batch_statistics: bool = False) -> Tensor:
        """The mean loss of each batch in nats per example, in evaluation mode; with ``batch_statistics`` batch
        normalisation takes those of each batch, as in training."""
        with batch_normalising(model) if batch_statistics else evaluating(model):
            return processes.mean(torch.stack([loss for loss, _ in self._pass(model)]))

    def look(self, model: nn.Module) -> tuple[float, float | None]:
        """The mean loss, and how much the network explains, both in nats per example; refused where it is no number."""
        losses, outputs = [], []
        with evaluating(model):
            for number, (loss, output) in enumerate(self._pass(model)):
                check_finite(float(loss), self.batches[number][0], f"training batch {number}")
                losses.append(float(loss))
                outputs.append(output)
        explained = self._explained(outputs)
        found = [sum(losses) / len(losses), *([] if explained is None else [explained])]
        mean, *known = processes.mean(torch.tensor(found, dtype=torch.float64)).tolist()
        return mean, known[0] if known else None

    def _explained(self, outputs: list[Any]) -> float | None:
        """Of all batches together where they can be put together: a batch alone tells at most the log of its size."""
        tensors = [output for output in outputs if isinstance(output, Tensor)]
        alike = len(tensors) == len(outputs) and len({tensor.shape[1:] for tensor in tensors}) == 1
        if alike and not isinstance(self.likelihood, SecondDerivative):
            return explained_nats(self.likelihood, torch.cat(tensors))
        pairs = zip(outputs, self.batches, strict=True)
        found = [explained_nats(self.likelihood, output, targets) for output, (_, targets) in pairs]
        known = [nats for nats in found if nats is not None]
        return sum(known) / len(known) if known else None

    def _pass(self, model: nn.Module) -> Iterator[tuple[Tensor, Any]]:
        """The loss of each batch in nats per example, and the outputs."""
        with torch.no_grad():
            for number, (inputs, targets) in enumerate(self.batches):
                outputs = outputs_of(model, inputs, f"training batch {number}")
                loss = data_loss(self.loss_fn, outputs, targets, f"training batch {number}").detach().double().cpu()
                yield loss / self._loss_per_nat(outputs), outputs

    def _loss_per_nat(self, outputs: Any) -> float:
        return self.likelihood.loss_per_nat(outputs) if isinstance(self.likelihood, Location) else 1.0
