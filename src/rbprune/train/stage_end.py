"""The end of a stage in a run: it sees data where it wants to, judges, cuts and recalibrates; every pass is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from rbprune.methods import StageResult
from rbprune.pruner import Loss
from rbprune.settings.sections import Settings
from rbprune.train.budget import Account, check_cost, forward_cost, observation_cost
from rbprune.train.engine import Engine
from rbprune.train.phase import PhaseRun
from rbprune.train.stream import count_examples, filled
from rbprune.utils.checked_calls import data_loss
from rbprune.utils.seeds import mix

CALIBRATION = 1 << 40
"""Number of an epoch that no training reaches: its batches recalibrate batch normalisation."""
OBSERVATION = CALIBRATION + 1
"""Number of another such epoch: its batches are shown to methods that look at data before they judge."""


def end_stage(current: PhaseRun, settings: Settings, engine: Engine, account: Account, loss_fn: Loss) -> StageResult:
    """Cut what the stage found redundant; returns what it did."""
    assert current.stage is not None
    torch.manual_seed(mix(settings.seed, current.phase.salt, OBSERVATION))
    if current.stage.observes:
        _observe(current, settings, engine, account, loss_fn)
    share = account.share()
    result = current.stage.finish(batches=_Recalibration(current, engine, account))
    engine.place(current.model)
    if current.stage.context.check is not None:
        look = 1 if current.phase.stage else 0  # the first stage begins where the dense network was measured
        account.spend("prune", check_cost(current.stream.steps, share, passes=look + result.cut.passes))
    return result


def _observe(current: PhaseRun, settings: Settings, engine: Engine, account: Account, loss_fn: Loss) -> None:
    """Show the stage some batches; they count by what is computed."""
    stage, steps = current.stage, current.stream.steps
    assert stage is not None
    count = min(settings.prune.observe, steps)
    epoch = islice(filled(current.stream.epoch(mix(current.phase.salt, OBSERVATION))), count)
    named = partial(data_loss, loss_fn, where="a batch that the method observes before it judges")
    stage.observe(((engine.put(x), engine.put(y)) for x, y in epoch), named)
    account.spend("prune", observation_cost(type(stage), count, steps, account.share()))


@dataclass(frozen=True)
class _Recalibration:
    """Inputs for the statistics of batch normalisation after the cut; they count like any forward pass."""

    current: PhaseRun
    engine: Engine
    account: Account

    def __iter__(self) -> Iterator[Any]:
        current, account = self.current, self.account
        epoch = current.stream.epoch(mix(current.phase.salt, CALIBRATION))
        usable = (batch for batch in epoch if current.can_train(batch[0], count_examples(*batch)))
        steps = current.stream.steps
        for inputs, _ in islice(usable, account.recalibration_batches(steps)):
            account.spend("prune", forward_cost(1, steps, account.share()))
            yield self.engine.put(inputs)
