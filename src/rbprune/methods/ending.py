"""When a stage is over: the rates have stopped moving, what is to go is decided, and the rates are at 0 or 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from rbprune.errors import DataError

if TYPE_CHECKING:
    from rbprune.methods.stage import Stage

Batch = TypeVar("Batch")

STAGE_STEPS = 200
"""Steps of a stage by default: rates that go a twentieth of their way in each are at their end, and the curvature is
known."""
AT_REST = 0.01
"""Rates that move less than this on average between two looks are at rest, by default."""
FEWEST = 10
"""Steps between two looks, at least."""
CLOSING, CLOSING_PART, CLOSING_LOOK = 40, 3, 5
"""The last steps of a stage, and at most a third of it, bring the rates to 0 or 1; how often it is seen whether they
are there."""
SLOW = 0.2
CALM = 3
"""So many looks in a row must find the rates at rest."""


class Settling:
    """Compares the rates with what they were ``interval`` steps ago.

    They are at rest when no more than ``few`` channels crossed the threshold since then and the others moved by less
    than ``tolerance`` on average; a stage has settled when this was so ``CALM`` times in a row. A tolerance of 0 never
    settles. Rates that can only move by ``speed`` in a step are not at rest while they go at a fifth of that.
    """

    def __init__(
        self, tolerance: float, interval: int, threshold: float, *, speed: float = float("inf"), few: int = 0
    ) -> None:
        self.tolerance = min(tolerance, SLOW * speed * interval)
        self.interval, self.threshold, self.few = interval, threshold, few
        self.before: Tensor | None = None
        self.calm = 0

    @classmethod
    def of(cls, stage: Stage, tolerance: float, interval: int) -> Settling | None:
        """For the rates of a stage, as its settings say; None where it has none that could come to rest."""
        if stage.watched() is None:
            return None
        threshold = 0.5 if stage.settings.threshold is None else stage.settings.threshold
        return cls(tolerance, interval, threshold, speed=stage.settings.step_size, few=stage.few_undecided)

    def settled(self, step: int, rates: Tensor) -> bool:
        """Call after every step (counted from 1)."""
        if not self.tolerance or step % self.interval:
            return False
        before, self.before = self.before, rates.detach().clone()
        if before is None:
            return False
        crossed = (before > self.threshold) != (self.before > self.threshold)
        moved = float((before - self.before).abs()[~crossed].sum()) / len(rates)
        self.calm = 0 if int(crossed.sum()) > self.few or moved >= self.tolerance else self.calm + 1
        return self.calm >= CALM


class StageEnding:
    """Watches over the end of a stage of at most so many steps.

    When it has come to rest, or to its last steps, the stage decides what goes; then the rates go where they will be
    after the cut, so that the cut itself changes little. A method that has nothing to bring there ends at once.
    """

    def __init__(self, stage: Stage, settling: Settling | None, steps: int) -> None:
        self.stage, self.settling, self.steps = stage, settling, steps
        stage.expect(steps)
        self.settled = False
        """Whether the stage has come to rest, with all but a few channels decided."""

    def is_over(self, step: int) -> bool:
        """Call after every step (counted from 1)."""
        stage = self.stage
        self.settled = self.settled or self._at_rest(step)
        last = min(CLOSING, self.steps // CLOSING_PART)
        if not stage.closing and (self.settled or step >= self.steps - last):
            stage.close(last)
        done = step % CLOSING_LOOK == 0 and stage.closed if stage.closing else self.settled
        return done or step >= self.steps

    def _at_rest(self, step: int) -> bool:
        watched = self.stage.watched()
        at_rest = self.settling is not None and watched is not None and self.settling.settled(step, watched)
        return at_rest and self.stage.decided


def stage_batches(stage: Stage, loader: Iterable[Batch], most: int) -> Iterator[Batch]:
    """Batches of a loader, again and again, until the stage is over, after at most so many.

    Behind each batch there must be a training step: what the stage has learnt from it decides whether there is another.
    """
    ending, step = StageEnding(stage, Settling.of(stage, AT_REST, FEWEST), most), 0
    while step < most:
        before = step
        for batch in loader:
            yield batch
            step += 1
            if ending.is_over(step):
                return
        if step == before:
            raise DataError(f"the loader has no batch {'any more ' if step else ''}for stage {', '.join(stage.names)}")
