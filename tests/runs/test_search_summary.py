"""One summary and one log of the runs of a search."""

from __future__ import annotations

from typing import Any

import pytest

from rbprune.graph.cost import MACS
from rbprune.runs.error_search import Attempt, SearchOutcome
from rbprune.runs.point import PrunedPoint
from rbprune.runs.search_summary import StepRun, StepRuns, chain_events, summarise_search
from rbprune.settings.recipe import load_recipe
from rbprune.train.evaluate import Mistakes


def point(path: str, macs: float, error: float, epochs: float = 0.0) -> PrunedPoint:
    costs = {"macs": macs, "params": macs}
    wrong = Mistakes(100, tuple(range(int(error))), 1)
    return PrunedPoint(path, costs, {name: 100 / v for name, v in costs.items()}, "error", error, error, epochs, wrong)


def run(start: PrunedPoint, end: PrunedPoint, channels: dict[str, list[int]], **epochs: float) -> StepRun:
    summary: dict[str, Any] = {"undecided": {"a": 0.5}, "guarded": ["a"], "cuts": [{"gone": 1}], "seconds": 2.0}
    verdict = ["goes" if c % 2 == 0 else "stays" for c in range(channels["a"][0])]
    spent = {"pretrain": 0.0, "prune": 0.0, "finetune": 0.0, **epochs}
    events = [
        {"event": "start", "time": 0.0},
        {"event": "dense", "time": 1.0},
        {
            **{"event": "stage", "time": 2.0, "stage": 0, "stages": 1, "macs": end.costs["macs"], "params": 1.0},
            "records": {"a": {"channels": list(range(len(verdict))), "verdict": verdict}},
        },
        {
            "event": "epoch",
            "time": 3.0,
            "phase": "finetune",
            "stage": None,
            "epoch": 1,
            "epochs": 1,
            "dense_epochs": 1.0,
        },
        {"event": "done", "time": 4.0, "layers": [end.path]},
    ]
    return StepRun(start, end, {**summary, "channels": channels, "dense_epochs": spent}, events)


DENSE = point("dense", 100.0, 4.0)
GOOD = point("01", 50.0, 5.0, 2.0)
BAD = point("02", 30.0, 9.0, 4.0)
TUNED = point("recovery", 50.0, 4.0, 3.0)


def searched() -> tuple[SearchOutcome, StepRuns]:
    runs = StepRuns()
    runs.add(run(DENSE, GOOD, {"a": [8, 4]}, prune=0.5, finetune=1.5))
    runs.add(run(GOOD, BAD, {"a": [4, 2], "b": [6, 5]}, prune=1.0, finetune=3.0))
    runs.add(run(GOOD, TUNED, {"a": [4, 4]}, pretrain=2.0))
    attempts = [Attempt("dense", 1.5, GOOD, True), Attempt("01", 2.25, BAD, False)]
    return SearchOutcome(DENSE, GOOD, 5.5, attempts, TUNED), runs


def test_the_result_is_compared_with_the_dense_network_and_all_steps_are_counted() -> None:
    found, runs = searched()
    settings = load_recipe("demo", ["prune.max_error_rise=1.5"])
    summary = summarise_search(found, runs, settings, MACS, dataset_size=77)
    assert (summary["macs_before"], summary["macs_after"], summary["macs_ratio"]) == (100.0, 50.0, 2.0)
    assert (summary["val_error_before"], summary["val_error_after"]) == (4.0, 4.0)
    assert summary["channels"] == {"a": [8, 4]}, "the step that led nowhere is not in it"
    assert summary["dense_epochs"] == {"pretrain": 0.0, "prune": 1.0, "finetune": 1.5 + 1.5 + 1.0}
    assert summary["seconds"] == 6.0 and summary["dataset_size"] == 77
    assert [attempt["within"] for attempt in summary["search"]["attempts"]] == [True, False]
    assert summary["verdict"]["level"] == "good" and "2.00x fewer MACs" in summary["verdict"]["text"]


def test_nothing_removed_is_a_bad_verdict_with_a_remedy() -> None:
    found = SearchOutcome(DENSE, DENSE, 4.0, [Attempt("dense", 1.5, BAD, False), Attempt("dense", 1.05, BAD, False)])
    summary = summarise_search(found, StepRuns(), load_recipe("demo", ["prune.max_error_rise=0"]), MACS, dataset_size=1)
    assert summary["verdict"]["level"] == "bad"
    assert "down to 1.05x fewer MACs" in summary["verdict"]["text"] and "data.val" in summary["verdict"]["text"]
    assert (summary["channels"], summary["macs_ratio"]) == ({}, 1.0)


def test_the_log_counts_stages_epochs_and_costs_on() -> None:
    found, runs = searched()
    start = {"event": "start", "time": 0.0, "macs": 100.0, "params": 100.0, "layers": ["all"]}
    log = chain_events(runs.chain(found.result), start, {"a": 1})
    assert [event["event"] for event in log] == ["start", "dense", "stage", "epoch", "stage", "epoch", "done"]
    stages = [event for event in log if event["event"] == "stage"]
    assert [(e["stage"], e["stages"], e["macs_ratio"]) for e in stages] == [(0, 2, 2.0), (1, 2, 2.0)]
    records = [event["records"]["a"]["channels"] for event in stages]
    assert records == [list(range(8)), [1, 3, 5, 7]], "channels are numbered as in the dense network"
    epochs = [event for event in log if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs] == [1, 2]
    assert [event["dense_epochs"] for event in epochs] == pytest.approx([1.0, 2.5])
    assert log[-1]["summary"] == {"a": 1} and log[-1]["layers"] == ["recovery"]
    assert chain_events([], start, {})[-1]["layers"] == ["all"]
