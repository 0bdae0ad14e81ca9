"""The search for the smallest network within an error, where the error is a known function of the cost."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rbprune.errors import ConfigError, OutOfReachError
from rbprune.graph.cost import MACS
from rbprune.runs.error_search import REFINEMENTS, SearchOutcome, search_within
from rbprune.runs.point import PrunedPoint


class Known:
    """Steps whose networks have the error that a function of their ratio says."""

    def __init__(self, error: Callable[[float], float], *, reach: float = math.inf, recovery: float = 0.0) -> None:
        self.error, self.reach, self.recovery = error, reach, recovery
        self.calls: list[tuple[str, float]] = []

    def _point(self, path: str, ratio: float, error: float | None) -> PrunedPoint:
        return PrunedPoint(path, {"macs": 1000 / ratio}, {"macs": ratio}, "error", error, error)

    def dense(self) -> PrunedPoint:
        return self._point("dense", 1.0, self.error(1.0))

    def attempt(self, start: PrunedPoint, ratio: float, number: int) -> PrunedPoint:
        self.calls.append((start.path, ratio))
        if ratio > self.reach:
            raise OutOfReachError(f"{ratio:g} is out of reach")
        return self._point(f"{number:02d}", ratio, self.error(ratio))

    def recover(self, best: PrunedPoint) -> PrunedPoint | None:
        assert best.val_error is not None
        return self._point("recovery", best.ratios["macs"], best.val_error + self.recovery)


@pytest.mark.parametrize("edge", [1.1, 1.49, 1.5, 1.9, 2.6, 4.0, 7.77, 30.0])
def test_it_comes_within_a_small_step_of_the_edge_and_never_beyond_it(edge: float) -> None:
    """An error that jumps above the limit at some ratio: what is left is at most the last step, 1.5^(1/8)."""
    steps = Known(lambda ratio: 5.0 if ratio <= edge else 6.0)
    found = search_within(steps, MACS, 0.5)
    reached = found.result.ratios["macs"]
    assert reached <= edge * (1 + 1e-9)
    assert edge / reached <= 1.5 ** (1 / 2**REFINEMENTS) * (1 + 1e-5)
    failures = [attempt for attempt in found.attempts if not attempt.is_within]
    assert failures and len(found.attempts) <= math.ceil(math.log(edge, 1.5)) + 1 + REFINEMENTS


def test_a_step_that_failed_is_taken_back() -> None:
    """What follows starts from the last network within the limit, by its path."""
    steps = Known(lambda ratio: 5.0 if ratio <= 2.0 else 9.0)
    found = search_within(steps, MACS, 1.0)
    starts = [start for start, _ in steps.calls]
    assert starts[:3] == ["dense", "01", "01"], "1.5x is good, 2.25x is not, and 1.84x is tried from 1.5x"
    assert [round(ratio, 2) for _, ratio in steps.calls] == [1.5, 2.25, 1.84, 2.03, 1.93]
    assert found.best.path == "05"


@pytest.mark.parametrize(("recovery", "path"), [(-0.3, "recovery"), (0.0, "recovery"), (0.2, "02"), (math.nan, "02")])
def test_the_end_is_the_better_of_before_and_after_the_last_fine_tuning(recovery: float, path: str) -> None:
    steps = Known(lambda ratio: 5.0 if ratio <= 2.3 else 9.0, recovery=recovery)
    found: SearchOutcome = search_within(steps, MACS, 0.1)
    assert found.result.val_error is not None and found.result.val_error <= 5.1
    assert (found.result.path, found.best.path) == (path if path == "recovery" else found.best.path, found.best.path)
    assert (found.result is found.best) == (path != "recovery")


def test_where_nothing_may_go_the_dense_network_is_the_result() -> None:
    found = search_within(Known(lambda ratio: 5.0 * ratio), MACS, 0.0)
    assert found.result is found.best is found.dense and found.recovered is None
    assert len(found.attempts) == 1 + REFINEMENTS, "each smaller than the last"


def test_what_is_out_of_reach_ends_the_search_like_an_error_that_is_too_high() -> None:
    found = search_within(Known(lambda ratio: 5.0, reach=3.0), MACS, 0.5)
    assert found.result.ratios["macs"] <= 3.0 < found.result.ratios["macs"] * 1.06
    refused = [attempt.refused for attempt in found.attempts if attempt.point is None]
    assert refused and all(text is not None and "out of reach" in text for text in refused)
    assert found.attempts[-1].to_dict().keys() >= {"start", "asked", "within", "refused"}


def test_an_error_that_is_no_number_is_within_no_limit() -> None:
    found = search_within(Known(lambda ratio: 5.0 if ratio == 1 else math.nan), MACS, 50.0)
    assert found.result is found.dense


def test_steps_that_remove_nothing_end_the_search() -> None:
    class Stuck(Known):
        def attempt(self, start: PrunedPoint, ratio: float, number: int) -> PrunedPoint:
            self.calls.append((start.path, ratio))
            return self._point(f"{number:02d}", 1.0, 5.0)

    steps = Stuck(lambda ratio: 5.0)
    assert search_within(steps, MACS, 0.5).result.path == "dense"
    assert len(steps.calls) == 1


def test_smaller_steps_that_lead_to_the_same_network_are_not_tried_for_ever() -> None:
    """Where one channel is worth more than the step: asked for 1.5x or 1.2x, 2x comes out."""

    class Coarse(Known):
        def attempt(self, start: PrunedPoint, ratio: float, number: int) -> PrunedPoint:
            self.calls.append((start.path, ratio))
            return self._point(f"{number:02d}", 2.0, 9.0)

    steps = Coarse(lambda ratio: 5.0)
    assert search_within(steps, MACS, 0.5).result.path == "dense"
    assert len(steps.calls) == 2


def test_without_a_validation_error_in_points_it_is_refused() -> None:
    class Blind(Known):
        def dense(self) -> PrunedPoint:
            return self._point("dense", 1.0, None)

    with pytest.raises(
        ConfigError, match="prune.max_error_rise compares validation errors, and there are no validation"
    ):
        search_within(Blind(lambda ratio: 5.0), MACS, 0.5)
