"""What is measured of the dense network, and on which batches: every cut is measured on the same ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch

from rbprune.bayes.likelihood import Location
from rbprune.pruner import DenseMeasures, Pruner
from rbprune.train.budget import CHECK_BATCHES, Account, forward_cost
from rbprune.train.engine import Engine
from rbprune.train.evaluate import Score
from rbprune.train.state import RunData, RunState
from rbprune.train.stream import Batch, Stream, filled, rows
from rbprune.utils.checked_calls import data_loss, outputs_of
from rbprune.utils.modes import evaluating
from rbprune.utils.seeds import mix

CHECK = (1 << 40) + 3
"""Number of an epoch that no training reaches: cuts are measured on its first batches, the same throughout a run."""


def score_dense(data: RunData, state: RunState, score: Callable[[Stream], Score]) -> None:
    """Note how wrong the dense network is, on the test data and on the validation data, as far as there are some."""
    test = None if data.test is None else score(data.test)
    val = test if data.val is data.test else None if data.val is None else score(data.val)
    if test is not None:
        state.error_before, state.top5_before = test.value, test.top5
    if val is not None:
        state.val_error_before = val.value
        state.mistakes_before = None if val.mistakes is None else val.mistakes.to_dict()


def measure_dense(
    pruner: Pruner, stream: Stream, engine: Engine, state: RunState, account: Account, *, seed: int
) -> None:
    """Let the pruner look at the dense network; a resumed run only takes up its batches again."""
    known = None if state.dense_loss is None else DenseMeasures(state.dense_loss, state.explained)
    batches = check_batches(stream, engine, seed)
    if known is None:
        _check_targets(pruner, batches)
    found = pruner.measure(batches, known)
    if known is None:
        state.dense_loss, state.explained = found.loss, found.explained
        account.spend("prune", forward_cost(len(batches), stream.steps))
        if isinstance(pruner.likelihood, Location):
            state.error_sums = pruner.likelihood.sums.tolist()


def _check_targets(pruner: Pruner, batches: list[Batch]) -> None:
    """Name what does not fit, if the loss cannot take the targets."""
    assert pruner.loss_fn is not None
    with evaluating(pruner.model), torch.no_grad():
        for inputs, targets in batches[:1]:
            data_loss(pruner.loss_fn, outputs_of(pruner.model, inputs, "training batch 0"), targets, "training batch 0")


def check_batches(stream: Stream, engine: Engine, seed: int) -> list[tuple[Any, Any]]:
    """The training batches that the dense network and every cut are measured on; not those of one example, which batch
    normalisation cannot take, unless there are no others."""
    torch.manual_seed(mix(seed, CHECK))  # for a loader that shuffles by itself
    epoch: list[Batch] = list(islice(filled(stream.epoch(CHECK)), min(CHECK_BATCHES, stream.steps)))
    several = [batch for batch in epoch if rows(batch[1]) != 1]
    return [(engine.put(inputs), engine.put(targets)) for inputs, targets in several or epoch]
