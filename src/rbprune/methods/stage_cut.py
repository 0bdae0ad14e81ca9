"""The cut at the end of a stage: what the stage proposes, made as a transaction where it can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.methods.agreement import check_agreement
from rbprune.methods.compensation import Compensation, FactorCompensation, WeightCompensation
from rbprune.methods.cut import CutReport, Proposal, StageStart, Transaction, cut_unmeasured
from rbprune.methods.settings import PruningSettings

if TYPE_CHECKING:
    from rbprune.methods.stage import Stage
    from rbprune.methods.verdict import Verdict


def check_compensation(stage: type[Stage], settings: PruningSettings) -> None:
    """Refuse a way to compensate that a method does not have."""
    if settings.compensate == "none":
        return
    if stage.refits:
        raise ConfigError(
            f"method {settings.method!r} changes the weights of what stays by itself, so that "
            f"prune.compensate={settings.compensate!r} does not fit it; set prune.compensate='none'"
        )
    if settings.compensate == "factors" and not stage.knows_curvature(settings):
        raise ConfigError(
            f"prune.compensate='factors' needs the curvature of the loss in the factors on channels, which rbp, rrbp "
            f"and ibp estimate with prune.rates='fixed-point', and method {settings.method!r} with "
            f"rates={settings.rates!r} does not; set prune.compensate='weights'"
        )


def cut_stage(
    stage: Stage,
    verdicts: dict[str, Verdict],
    gone: dict[str, Tensor],
    batches: Iterable[Any],
    optimizer: torch.optim.Optimizer | None,
) -> CutReport:
    """Forecast the cut, take the stage off the model, and make the cut, or what can be afforded of it; of several
    processes all must come to the same network.

    ``batches`` are inputs for the recalibration, and for the compensation by weights.
    """
    context, forecast = stage.context, stage.forecast(gone)
    stage.abandon(forget=False)
    if isinstance(batches, Iterator):
        batches = list(batches)  # a cut that is taken back needs them again
    proposal = Proposal(
        gone,
        factors={name: verdict.factor for name, verdict in verdicts.items() if verdict.factor is not None},
        ranks={name: verdict.ranking for name, verdict in verdicts.items()},
        forecast=forecast,
        prepare=stage.before_cut if stage.fills_in("before_cut") else None,
        compensation=_compensation(stage, batches),
        step=stage.settings.channel_step,
        worth=stage.worth(),
    )
    if context.check is None:
        report = cut_unmeasured(stage.graph, proposal, batches, optimizer)
    else:
        start = None if stage.start is None else StageStart(stage.start, stage.first_ranks() or proposal.ranks)
        transaction = Transaction(stage.graph, context.check, limit=context.limit, allowed=context.allowed)
        report = transaction.make(proposal, batches, start, optimizer)
    check_agreement(stage.graph, stage.names)
    return report


def _compensation(stage: Stage, batches: Iterable[Any]) -> Compensation | None:
    """What the settings ask for."""
    if stage.settings.compensate == "factors":
        return FactorCompensation(stage.graph, stage.compensating_factors)
    if stage.settings.compensate == "weights":
        check = stage.context.check
        others = () if check is None else [inputs for inputs, _ in check.batches]
        return WeightCompensation(stage.graph, stage.names, batches, others, stage.tell)
    return None
