"""As small as a limit on the validation error allows: a search over steps, each from the last network within it.

Steps go down by a factor while the validation error after a step's recovery is within the limit. From the first that is
not, the search goes back to the last good network, and every further step is half as large (in the logarithm of the
cost) as the one before it. The best network is then fine-tuned once more, and what is handed out is the better of the
two, so that its validation error is never above the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from rbprune.errors import OutOfReachError
from rbprune.graph.cost import Cost
from rbprune.runs.frontier import FACTOR
from rbprune.runs.point import PrunedPoint, check_has_validation

REFINEMENTS = 3
"""How many smaller steps are tried once a step was too large; the last is an eighth of a whole one."""


class Steps(Protocol):
    """What makes networks: runs in folders, or runs in memory."""

    def dense(self) -> PrunedPoint:
        """The network to start from."""

    def attempt(self, start: PrunedPoint, ratio: float, number: int) -> PrunedPoint:
        """Prune ``start`` until its cost is so many times less than that of the dense network, and recover."""

    def recover(self, best: PrunedPoint) -> PrunedPoint | None:
        """Fine-tune the network that was found once more; None where the settings ask for no fine-tuning."""


@dataclass(frozen=True)
class Attempt:
    """One step that was tried."""

    start: str
    """The network from which it started, by its path."""
    ratio: float
    """How many times less than the dense network it was to cost."""
    point: PrunedPoint | None
    """What came out; None where so small a network is out of reach."""
    is_within: bool
    """Whether its validation error is within the limit."""
    refused: str | None = None
    """Why nothing came out."""

    def to_dict(self) -> dict[str, Any]:
        """The fields of ``summary.json``."""
        point = None if self.point is None else self.point.to_dict()
        plain = {"start": self.start, "asked": self.ratio, "within": self.is_within, "refused": self.refused}
        if point is None:
            return plain
        return {**plain, "path": point["path"], "ratios": point["ratios"], "val_error": point["val_error"]}


@dataclass
class SearchOutcome:
    """What a search found."""

    dense: PrunedPoint
    best: PrunedPoint
    """The smallest network within the limit; the dense one where no smaller one is."""
    limit: float
    """The highest validation error that is allowed, in per cent."""
    attempts: list[Attempt] = field(default_factory=list)
    recovered: PrunedPoint | None = None
    """The best network after one more fine-tuning, whether or not it became better."""

    @property
    def result(self) -> PrunedPoint:
        """What is handed out: the best network, or the same after one more fine-tuning if that is no worse."""
        after = None if self.recovered is None else self.recovered.val_error
        assert self.best.val_error is not None
        if self.recovered is None or after is None or not after <= self.best.val_error:
            return self.best
        return self.recovered


def search_within(steps: Steps, cost: Cost, max_error_rise: float) -> SearchOutcome:
    """The smallest network, in one cost, whose validation error is at most so many points above the dense one's."""
    dense = steps.dense()
    check_has_validation(dense, "prune.max_error_rise")
    assert dense.val_error is not None
    found = SearchOutcome(dense, dense, dense.val_error + max_error_rise)
    factor, smaller = FACTOR, 0
    while smaller <= REFINEMENTS:
        attempt = _attempt(steps, found, cost, factor)
        found.attempts.append(attempt)
        if attempt.is_within:
            assert attempt.point is not None
            if attempt.point.costs[cost.name] >= found.best.costs[cost.name]:
                break  # nothing went, and nothing would
            found.best = attempt.point
        elif _came_out_before(found.attempts, cost):
            break  # no channel is so cheap: smaller steps lead to the same network
        if smaller or not attempt.is_within:
            smaller, factor = smaller + 1, math.sqrt(factor)
    if found.best is not dense:
        found.recovered = steps.recover(found.best)
    return found


def _came_out_before(attempts: list[Attempt], cost: Cost) -> bool:
    """Whether the last attempt made a network of the same cost as an earlier one from the same start."""
    *earlier, last = attempts
    if last.point is None:
        return False
    costs = [each.point.costs[cost.name] for each in earlier if each.point is not None and each.start == last.start]
    return last.point.costs[cost.name] in costs


def _attempt(steps: Steps, found: SearchOutcome, cost: Cost, factor: float) -> Attempt:
    start = found.best
    ratio = float(f"{start.ratios[cost.name] * factor:.6g}")
    try:
        point = steps.attempt(start, ratio, len(found.attempts) + 1)
    except OutOfReachError as error:
        return Attempt(start.path, ratio, None, False, str(error))
    # an error that is no number is within no limit
    return Attempt(start.path, ratio, point, point.val_error is not None and point.val_error <= found.limit)
