"""Error of a model on a stream."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rbprune.errors import DataError
from rbprune.train.engine import Engine, call
from rbprune.train.objective import Loss, check_finite, data_loss, mistakes
from rbprune.train.stream import Stream, filled


class Score(NamedTuple):
    """How wrong a model is, and in which unit: an ``error`` in per cent, or a mean ``loss``."""

    value: float
    metric: Literal["error", "loss"]


def evaluate(engine: Engine, model: nn.Module, stream: Stream, loss_fn: Loss) -> Score:
    """Top-1 error in per cent; for anything but classification, the mean loss. Always in the model's own precision."""
    metric: Literal["error", "loss"] = "error"
    modes = {module: module.training for module in model.modules()}
    model.eval()
    wrong, count = 0.0, 0
    try:
        with torch.no_grad():
            for number, (inputs, targets) in enumerate(filled(stream.epoch(0))):
                inputs, targets = engine.put(inputs), engine.put(targets)
                outputs = call(model, inputs)
                where = f"evaluation batch {number}"
                errors = mistakes(outputs, targets)
                size = len(targets) if isinstance(targets, Tensor) else 1
                if errors is None:
                    metric = "loss"
                    loss = float(data_loss(loss_fn, outputs, targets, where))
                    check_finite(loss, inputs, where)
                    wrong += loss * size
                else:
                    wrong += 100.0 * float(errors.sum())
                count += size
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not count:
        raise DataError("no example could be read for evaluation: all were left out as corrupt; check data.path")
    return Score(wrong / count, metric)
