"""Error of a model on a stream."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rbprune.bayes.likelihood import Softmax, likelihood_of
from rbprune.errors import DataError
from rbprune.pruner import Loss
from rbprune.train.engine import Engine
from rbprune.train.objective import check_labels_of, is_classification, mistakes
from rbprune.train.stream import Stream, filled
from rbprune.utils.checked_calls import data_loss, outputs_of
from rbprune.utils.finite import check_evaluated, check_finite
from rbprune.utils.modes import evaluating

MANY_CLASSES = 100
"""From here on the top-5 error is reported too."""


@dataclass(frozen=True)
class Mistakes:
    """Which examples a classifier got wrong, so that two networks can be compared example by example."""

    examples: int
    wrong: tuple[int, ...]
    """Their places in the order in which the examples came."""
    order: int
    """A checksum of the classes in that order: other examples, or the same in another order, have another one."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self) | {"wrong": list(self.wrong)}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Mistakes:
        """Read what ``to_dict`` gave.

        >>> Mistakes.from_dict(Mistakes(4, (1, 3), 7).to_dict())
        Mistakes(examples=4, wrong=(1, 3), order=7)
        """
        return Mistakes(fields["examples"], tuple(fields["wrong"]), fields["order"])


class Score(NamedTuple):
    """How wrong a model is, and in which unit: an ``error`` in per cent, or a mean ``loss``."""

    value: float
    metric: Literal["error", "loss"]
    top5: float | None = None
    mistakes: Mistakes | None = None
    """Of a classifier, the examples it got wrong."""


def evaluate(engine: Engine, model: nn.Module, stream: Stream, loss_fn: Loss) -> Score:
    """Top-1 error in per cent (and top-5 with 100 classes or more); for anything but classification, the mean loss.

    Always in the model's own precision.
    """
    metric: Literal["error", "loss"] = "error"
    likelihood = likelihood_of(loss_fn)
    ignored = likelihood.ignore_index if isinstance(likelihood, Softmax) else None
    wrong, far_off, count, many = 0.0, 0, 0, False
    places: list[int] = []
    order = 0
    with evaluating(model), torch.no_grad():
        for number, (inputs, targets) in enumerate(filled(stream.epoch(0))):
            inputs, targets = engine.put(inputs), engine.put(targets)
            where = f"evaluation batch {number}"
            outputs = outputs_of(model, inputs, where)
            check_evaluated(model, inputs, outputs, targets, where)
            if is_classification(outputs, targets):
                check_labels_of(outputs, targets, where, ignored)
                seen = targets != (-1 if ignored is None else ignored)
                outputs, targets = outputs[seen], targets[seen]
            errors = mistakes(outputs, targets)
            size = len(targets) if isinstance(targets, Tensor) else 1
            if errors is None:
                metric = "loss"
                loss = float(data_loss(loss_fn, outputs, targets, where))
                check_finite(loss, inputs, where)
                wrong += loss * size
            else:
                wrong += 100.0 * float(errors.sum())
                places += (errors.nonzero().flatten() + count).tolist()
                order = zlib.crc32(targets.cpu().long().numpy().tobytes(), order)
                many = outputs.shape[1] >= MANY_CLASSES
                missed = mistakes(outputs, targets, best=5) if many else None
                far_off += 0 if missed is None else int(missed.sum())
            count += size
    if not count:
        raise DataError("no example could be read for evaluation: all were left out as corrupt; check data.path")
    mistaken = Mistakes(count, tuple(places), order) if metric == "error" else None
    return Score(wrong / count, metric, 100.0 * far_off / count if many else None, mistaken)
