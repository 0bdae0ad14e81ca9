"""Error of a model on a stream."""

from __future__ import annotations

from typing import Literal, NamedTuple

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


class Score(NamedTuple):
    """How wrong a model is, and in which unit: an ``error`` in per cent, or a mean ``loss``."""

    value: float
    metric: Literal["error", "loss"]
    top5: float | None = None


def evaluate(engine: Engine, model: nn.Module, stream: Stream, loss_fn: Loss) -> Score:
    """Top-1 error in per cent (and top-5 with 100 classes or more); for anything but classification, the mean loss.

    Always in the model's own precision.
    """
    metric: Literal["error", "loss"] = "error"
    likelihood = likelihood_of(loss_fn)
    ignored = likelihood.ignore_index if isinstance(likelihood, Softmax) else None
    wrong, far_off, count, many = 0.0, 0, 0, False
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
                many = outputs.shape[1] >= MANY_CLASSES
                missed = mistakes(outputs, targets, best=5) if many else None
                far_off += 0 if missed is None else int(missed.sum())
            count += size
    if not count:
        raise DataError("no example could be read for evaluation: all were left out as corrupt; check data.path")
    return Score(wrong / count, metric, 100.0 * far_off / count if many else None)
