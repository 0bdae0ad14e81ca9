from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rbprune.logging.events import read_events
from rbprune.report.run_charts import TitledChart, run_charts
from rbprune.report.run_record import gather_run


def charts_of(events: list[dict[str, Any]]) -> dict[str, TitledChart]:
    return {chart.title: chart for chart in run_charts(gather_run(events))}


def ticks(drawing: str) -> list[float]:
    """The numbers below the horizontal axis."""
    found = re.findall(r'<text class="tick"[^>]*text-anchor="middle">([^<]*)</text>', drawing)
    return [float(value) for value in found]


def test_without_a_cost_the_axis_counts_epochs() -> None:
    events = [{"event": "epoch", "phase": "prune", "epoch": i, "val_error": 9.0 - i} for i in range(3)]
    (chart,) = run_charts(gather_run(events))
    assert chart.title == "Validation error while pruning" and ">epochs<" in chart.drawing
    assert max(ticks(chart.drawing)) == 3


def test_the_recovery_begins_where_pruning_ended() -> None:
    events = [
        {"event": "epoch", "phase": "prune", "stage": 0, "epoch": 1, "dense_epochs": 1.0, "val_error": 9.0},
        {"event": "stage", "stage": 0, "val_error": 20.0},
        {"event": "epoch", "phase": "finetune", "epoch": 1, "dense_epochs": 1.5, "val_error": 8.0},
    ]
    recovery = charts_of(events)["Validation error while fine-tuning"]
    assert "after stage 1: 20.00 %" in recovery.drawing and "9.00 %" not in recovery.drawing


def test_fine_tuning_has_its_own_axis() -> None:
    """It starts at 0, counts its own epochs, and neither phase stretches the axes of the other."""
    events: list[dict[str, Any]] = [
        {"event": "epoch", "phase": "pretrain", "epoch": n, "dense_epochs": float(n), "val_error": 90.0 / n}
        for n in range(1, 13)
    ]
    events += [
        {"event": "epoch", "phase": "prune", "stage": 0, "epoch": 1, "dense_epochs": 14.0, "val_error": 9.0},
        {"event": "stage", "stage": 0, "val_error": 20.0},
    ]
    events += [
        {"event": "epoch", "phase": "finetune", "epoch": n, "dense_epochs": 14 + n / 100, "val_error": 10.0 - n / 10}
        for n in range(1, 26)
    ]
    charts = charts_of(events)
    tuning = charts["Validation error while fine-tuning"].drawing
    assert (min(ticks(tuning)), max(ticks(tuning))) == (0, 25)
    pruning = charts["Validation error while pruning"].drawing
    assert max(ticks(pruning)) == 2, "dense epochs since pruning began, without those of pretraining and fine-tuning"
    assert "fine-tune" not in pruning and "90.00 %" not in pruning and "prune" not in tuning


def test_phases_that_come_in_turns_are_joined() -> None:
    """A search within an error prunes and recovers several times; its epochs of fine-tuning count on."""
    events = [
        {"event": "epoch", "phase": "prune", "stage": 0, "epoch": 1, "dense_epochs": 1.0, "val_error": 9.0},
        {"event": "stage", "stage": 0, "val_error": 20.0},
        {"event": "epoch", "phase": "finetune", "epoch": 1, "dense_epochs": 3.0, "val_error": 8.0},
        {"event": "epoch", "phase": "prune", "stage": 1, "epoch": 1, "dense_epochs": 4.0, "val_error": 9.0},
        {"event": "stage", "stage": 1, "val_error": 30.0},
        {"event": "epoch", "phase": "finetune", "epoch": 2, "dense_epochs": 6.0, "val_error": 8.5},
    ]
    charts = charts_of(events)
    assert max(ticks(charts["Validation error while pruning"].drawing)) == 2
    tuning = charts["Validation error while fine-tuning"].drawing
    assert "after stage 1: 20.00 %" in tuning and "after stage 2: 30.00 %" in tuning and max(ticks(tuning)) == 2


def test_a_finished_run_has_all_charts_and_its_stages_are_marked(finished: Path) -> None:
    charts = run_charts(gather_run(read_events(finished / "events.jsonl")))
    titles = ["Validation error while pruning", "Validation error while fine-tuning"]
    titles += ["Training loss while pruning", "Training loss while fine-tuning", "KL", "Undecided"]
    assert [chart.title for chart in charts] == titles
    assert [chart.wide for chart in charts] == [True, False, False, False, False, False]
    assert charts[0].drawing.count("<svg") == 2, "for a wide page and for a narrow one"
    assert charts[0].drawing.count('class="mark"') == 2 * 25
    assert charts[0].drawing.count('class="band') == 2 * 25 and ">12<" in charts[0].drawing
    assert "cost, dense epochs since pruning began" in charts[0].drawing
    assert "prune stage 1 epoch 1: " in charts[2].drawing


def test_a_run_without_values_has_no_charts() -> None:
    assert run_charts(gather_run([{"event": "start"}, {"event": "epoch"}])) == []
