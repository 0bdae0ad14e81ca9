"""What training costs, in dense epochs: the currency of budgets, comparisons and plans."""

from __future__ import annotations

from rbprune.methods.stage import Stage

FORWARD = 1 / 3
"""What a forward pass counts of a training step."""
PRUNING_SHARE = 0.4
"""At most so much of a budget goes into pruning."""


def epoch_cost(share: float, *, taught: bool, beside: float = 0.0) -> float:
    """An epoch of a network with this share of the dense MACs. A teacher is one more forward pass of the dense network;
    ``beside`` is what a method computes in each step, as a part of the step.

    >>> epoch_cost(0.5, taught=False), round(epoch_cost(0.5, taught=True), 3), epoch_cost(0.5, taught=False, beside=0.2)
    (0.5, 0.833, 0.6)
    """
    return share * (1 + beside) + (FORWARD if taught else 0)


def forward_cost(batches: int, steps: int, share: float = 1.0) -> float:
    """So many batches of an epoch's ``steps`` sent through a network with this share of the dense MACs.

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


def stage_epochs(epochs: float, stages: int, budget: float | None, cost: float = 1.0) -> float:
    """How long each stage trains: as asked, within its part of the budget, where an epoch costs ``cost`` at most.

    >>> stage_epochs(1.0, 4, None), stage_epochs(1.0, 4, 5.0), stage_epochs(1.0, 4, 5.0, 1.25)
    (1.0, 0.5, 0.4)
    """
    return epochs if budget is None else min(epochs, PRUNING_SHARE * budget / (stages * cost))
