"""How long a run will still take, against what it did take."""

from __future__ import annotations

from typing import Any

import pytest

from rbprune.report.run_record import gather_run
from rbprune.runs.time_left import count_stages, seconds_left

CONFIG: dict[str, Any] = {"pretrain": {"epochs": 4}, "prune": {"epochs": 2}, "finetune": {"epochs": 10}, "budget": None}


def a_run(config: dict[str, Any] = CONFIG) -> list[dict[str, Any]]:
    """4 epochs of pretraining, 3 stages of 2 epochs and 10 of fine-tuning; a dense epoch takes 10 seconds, and the
    network costs half of it after the stages."""
    events: list[dict[str, Any]] = [{"event": "start", "config": config, "stages": [["a"], ["b"], ["c"]], "macs": 100}]
    cost = 0.0

    def epoch(phase: str, stage: int | None, number: int, epochs: int, share: float) -> None:
        nonlocal cost
        cost += share
        event = {"event": "epoch", "phase": phase, "stage": stage, "epoch": number, "epochs": epochs}
        events.append({**event, "dense_epochs": cost, "seconds": 10 * share})

    for number in range(1, 5):
        epoch("pretrain", None, number, 4, 1.0)
    for stage in range(3):
        for number in (1, 2):
            epoch("prune", stage, number, 2, 1.0)
        events.append(
            {"event": "stage", "stage": stage, "stages": 3, "seconds": 20.0, "macs": 100 - 50 * (stage + 1) / 3}
        )
    for number in range(1, 11):
        epoch("finetune", None, number, 10, 0.5)
    return [*events, {"event": "done", "summary": {}}]


def truth(events: list[dict[str, Any]], place: int) -> float:
    return sum(event.get("seconds", 0.0) for event in events[place:] if event["event"] == "epoch")


def test_the_guess_is_near_the_truth_and_rather_too_long() -> None:
    events = a_run()
    for place in range(2, len(events) + 1):
        left = seconds_left(gather_run(events[:place]))
        assert left is not None and truth(events, place) - 1e-9 <= left <= truth(events, place) + 51
    assert seconds_left(gather_run(events)) == 0
    tuning = next(i for i, event in enumerate(events) if event.get("phase") == "finetune")
    assert seconds_left(gather_run(events[: tuning + 3])) == pytest.approx(7 * 5.0)


def test_under_a_budget_pruning_and_fine_tuning_share_what_is_left() -> None:
    events = a_run({**CONFIG, "finetune": {"epochs": None}, "budget": 11.0})
    assert seconds_left(gather_run(events[:2])) == pytest.approx(3 * 10 + 11 * 10)
    assert seconds_left(gather_run(events[:7])) == pytest.approx(9 * 10)


def test_what_the_log_does_not_tell_is_not_guessed() -> None:
    assert seconds_left(gather_run([])) is None and seconds_left(gather_run(a_run()[:1])) is None
    assert seconds_left(gather_run([{"event": "epoch", "phase": "prune", "epoch": 1}])) is None
    assert seconds_left(gather_run(a_run({})[:2])) is None, "how long fine-tuning lasts is not known"


def test_a_dense_run_ends_with_its_training() -> None:
    events = a_run({**CONFIG, "task": "train"})
    assert seconds_left(gather_run(events[:3])) == pytest.approx(20)


def test_the_number_of_stages() -> None:
    assert count_stages(gather_run(a_run()[:1])) == 3 and count_stages(gather_run([])) is None
    assert count_stages(gather_run([{"event": "stage", "stage": 0, "stages": 7}])) == 7, "of an older version"
