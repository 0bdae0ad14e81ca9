"""What training costs, in dense epochs: the currency of budgets, comparisons and plans."""

from __future__ import annotations

from rbprune.methods.stage import Stage

FORWARD = 1 / 3
"""What a forward pass counts of a training step."""
PRUNING_SHARE = 0.4
"""At most so much of a budget goes into pruning."""


def epoch_cost(share: float, *, taught: bool) -> float:
    """An epoch of a network with this share of the dense MACs; a teacher is one more forward pass of the dense network.

    >>> epoch_cost(0.5, taught=False), round(epoch_cost(0.5, taught=True), 3)
    (0.5, 0.833)
    """
    return share + (FORWARD if taught else 0)


def observation_cost(stage: type[Stage], batches: int, steps: int, share: float = 1.0) -> float:
    """What a stage computes on so many batches of an epoch's ``steps`` before it judges."""
    if not stage.observes:
        return 0.0
    return (stage.observe_share * share + (FORWARD if stage.needs_dense else 0)) * min(batches, steps) / steps


def stage_epochs(epochs: float, stages: int, budget: float | None) -> float:
    """How long each stage trains: as asked, within its part of the budget.

    >>> stage_epochs(1.0, 4, None), stage_epochs(1.0, 4, 5.0)
    (1.0, 0.5)
    """
    return epochs if budget is None else min(epochs, PRUNING_SHARE * budget / stages)
