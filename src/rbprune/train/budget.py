"""What training costs, in dense epochs: the currency of budgets, comparisons and plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rbprune.graph.cost import MACS, Cost
from rbprune.methods.stage import Stage
from rbprune.pruner import Pruner
from rbprune.settings.sections import PruneSettings, Settings
from rbprune.train.phase import Kind, Phase
from rbprune.train.state import RunState
from rbprune.utils.batch_norm import batch_norms

FORWARD = 1 / 3
"""What a forward pass counts of a training step."""
CHECK_BATCHES, CHECK_PASSES = 4, 6
"""Training batches that every cut is measured on, and forward passes over them for each cut that is made as it was
meant: one before the stage, one when it ends, two on the way to the cut, one with the channels masked, one after
the recalibration."""
PRUNING_SHARE = 0.4
"""At most so much of a budget that was given goes into the training of stages, where nobody says otherwise."""
RECALIBRATION_SHARE, FEWEST_RECALIBRATION = 0.1, 10
"""At most so much of a budget goes into the statistics of batch normalisation after all cuts together, but each is
taken from so many batches."""


def epoch_cost(share: float, *, taught: bool, overhead: float = 0.0) -> float:
    """An epoch of a network with this share of the dense cost. A teacher is one more forward pass of the dense network;
    ``overhead`` is what a method computes in each step, as a part of the step.

    >>> epoch_cost(0.5, taught=False), round(epoch_cost(0.5, taught=True), 3)
    (0.5, 0.833)
    >>> epoch_cost(0.5, taught=False, overhead=0.2)
    0.6
    """
    return share * (1 + overhead) + (FORWARD if taught else 0)


def forward_cost(batches: int, steps: int, share: float = 1.0) -> float:
    """So many batches of an epoch's ``steps`` sent through a network with this share of the dense cost.

    >>> round(forward_cost(50, 375), 3)
    0.044
    """
    return FORWARD * share * min(batches, steps) / steps


def observation_cost(stage: type[Stage], batches: int, steps: int, share: float = 1.0) -> float:
    """What a stage computes on so many batches of an epoch's ``steps`` before it judges."""
    if not stage.observes:
        return 0.0
    dense = forward_cost(batches, steps) if stage.needs_dense else 0.0
    return stage.observe_share * share * min(batches, steps) / steps + dense


def stage_epochs(
    epochs: float, stages: int, budget: float | None, cost: float = 1.0, share: float | None = None
) -> float:
    """How long each stage trains: as asked, within its part of the budget, where an epoch costs ``cost`` at most.

    ``share`` is what may go into pruning, ``PRUNING_SHARE`` unless told otherwise.

    >>> stage_epochs(1.0, 4, None), stage_epochs(1.0, 4, 5.0), stage_epochs(1.0, 4, 5.0, 1.25)
    (1.0, 0.5, 0.4)
    >>> stage_epochs(1.0, 4, 5.0, 1.25, share=1)
    1.0
    """
    share = PRUNING_SHARE if share is None else share
    return epochs if budget is None else min(epochs, share * budget / (stages * cost))


def stage_length(
    epochs: float,
    stages: int,
    budget: float | None,
    epoch: Callable[[int], float],
    *,
    steps: int,
    share: float | None = None,
) -> float:
    """How long each stage trains, see ``stage_epochs``, where what an epoch costs depends on the steps of the stage.

    >>> stage_length(1.0, 4, 5.0, lambda steps: 1.25 if steps < 60 else 1.0, steps=100)
    0.4
    """
    found = epochs
    for _ in range(2):
        found = stage_epochs(epochs, stages, budget, epoch(round(found * steps)), share)
    return found


def with_budget(settings: Settings, pruner: Pruner, steps_of: Callable[[int], int]) -> Settings:
    """The settings with the length of the recovery decided, where it was left open.

    Where neither a budget nor the epochs of fine-tuning are given, every method has the same budget: what the default
    method may take on this network for its stages, and the recovery of the dense network. Whatever a method does not
    spend on pruning is left for its fine-tuning. ``steps_of`` says how many steps an epoch has with a batch size.
    """
    is_open = settings.budget is None and settings.finetune.epochs is None and settings.task == "prune"
    recovery_steps = steps_of(settings.finetune.batch_size)
    settings = settings.model_copy(update={"finetune": settings.finetune.with_epochs(recovery_steps)})
    if is_open:
        share = 1.0 if settings.pruning_share is None else settings.pruning_share
        budget = _default_budget(settings, pruner, steps_of(settings.prune.batch_size))
        settings = settings.model_copy(update={"budget": budget, "pruning_share": share})
    return settings


def _default_budget(settings: Settings, pruner: Pruner, steps: int) -> float:
    """What the default method may take, in dense epochs: each stage its length and the recalibration after it."""
    prune, finetune = settings.prune, settings.finetune
    default = PruneSettings.model_fields["method"].default
    stages, overhead = pruner.count_stages(default, round(prune.length * steps))
    stage = prune.length * epoch_cost(1, taught=prune.distill > 0, overhead=overhead)
    stage += recalibration_cost(settings, pruner, steps) + check_cost(steps)
    return stages * stage + finetune.length * epoch_cost(1, taught=finetune.distill > 0)


def check_cost(steps: int, share: float = 1.0, *, passes: int = CHECK_PASSES) -> float:
    """What measuring a cut takes, in dense epochs of so many steps."""
    return passes * forward_cost(CHECK_BATCHES, steps, share)


def recalibration_cost(settings: Settings, pruner: Pruner, steps: int) -> float:
    """What the recalibration after a cut takes at most, in dense epochs of so many steps."""
    batches = recalibration_batches(settings.runtime.recalibrate, len(pruner), settings.budget, steps)
    return forward_cost(batches, steps) if batch_norms(pruner.model) else 0.0


def recalibration_batches(most: int, stages: int, budget: float | None, steps: int) -> int:
    """How many batches of an epoch's ``steps`` give the statistics after each cut: ``most``, or what is affordable.

    Fifty batches after each of 15 cuts are as much as 250 training steps. Under a budget of one epoch that would be
    most of it, and the recovery, whose steps renew the statistics anyway, would go without.

    >>> recalibration_batches(50, 15, None, 352), recalibration_batches(50, 2, 4.0, 352)
    (50, 50)
    >>> recalibration_batches(50, 2, 0.25, 352), recalibration_batches(50, 15, 1.0, 352)
    (13, 10)
    """
    if budget is None:
        return most
    affordable = int(RECALIBRATION_SHARE * budget / (max(stages, 1) * forward_cost(1, steps)))
    return min(most, max(FEWEST_RECALIBRATION, affordable))


@dataclass
class Account:
    """What a run has spent, in dense epochs, and how long its phases may last.

    ``cost`` is what stands for the work of a training step: by default its multiply-accumulates.
    """

    settings: Settings
    pruner: Pruner
    state: RunState
    cost: Cost = MACS

    def __post_init__(self) -> None:
        self.dense = self.cost.total(self.pruner.graph)

    def share(self) -> float:
        """What is left of the dense network's cost, as a part of it."""
        return self.cost.total(self.pruner.graph) / self.dense

    def spend(self, kind: Kind, amount: float) -> None:
        """Book dense epochs on a kind of phase."""
        self.state.cost[kind] += amount

    def recalibration_batches(self, steps: int) -> int:
        """How many batches of an epoch's ``steps`` give the statistics of batch normalisation after a cut."""
        most = self.settings.runtime.recalibrate
        return recalibration_batches(most, len(self.pruner), self.settings.budget, steps)

    def starved(self, phase: Phase) -> str | None:
        """What to tell the user of a phase that has no training step, where it should have had some."""
        budget = self.settings.budget
        if phase.kind == "prune" and self.pruner.method.stage.trains:
            return f"stage {phase.stage} has no training step: its epochs or the budget are too small"
        if phase.kind == "finetune" and budget is not None:
            return (
                f"pruning took {self.state.cost['prune']:.3g} of the budget of {budget:.3g} dense epochs: "
                "nothing is left for fine-tuning; give a larger budget, or a method with fewer stages (rrbp)"
            )
        return None

    def total(self) -> float:
        """All that was spent."""
        return sum(self.state.cost.values())

    def epoch(self, phase: Phase, *, teacher: bool, steps: int) -> float:
        """An epoch of a phase of so many steps on the network as it is now; ``teacher``: whether there is one to
        distill from."""
        taught = phase.distill > 0 and teacher
        return epoch_cost(self.share(), taught=taught, overhead=self._overhead(phase, steps))

    def epochs(self, phase: Phase, *, teacher: bool, steps: int) -> float:
        """How many epochs of so many steps a phase lasts."""
        budget, stage = self.settings.budget, self.pruner.method.stage
        if phase.kind == "prune" and not stage.trains and not phase.stage:
            return 0.0  # nothing to train before the first cut
        if phase.kind == "finetune" and budget is not None:
            if self.state.finetune_epochs is None:
                left = budget - self.state.cost["prune"]
                self.state.finetune_epochs = max(0.0, left) / self.epoch(phase, teacher=teacher, steps=steps)
            return self.state.finetune_epochs
        if phase.kind == "prune" and budget is not None:

            def most(own: int) -> float:
                return epoch_cost(1, taught=phase.distill > 0, overhead=self._overhead(phase, own))

            share = self.settings.pruning_share
            return stage_length(phase.optim.length, len(self.pruner), budget, most, steps=steps, share=share)
        return phase.optim.length

    def _overhead(self, phase: Phase, steps: int) -> float:
        return self.pruner.method.stage.step_overhead(self.pruner.settings, steps) if phase.kind == "prune" else 0.0
