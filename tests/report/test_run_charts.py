from __future__ import annotations

from pathlib import Path

from rbprune.logging.events import read_events
from rbprune.report.run_charts import run_charts
from rbprune.report.run_record import gather_run


def test_without_a_cost_the_axis_counts_epochs() -> None:
    events = [{"event": "epoch", "phase": "finetune", "epoch": i, "val_error": 9.0 - i} for i in range(3)]
    (chart,) = run_charts(gather_run(events))
    assert chart.title == "Validation error" and ">epochs<" in chart.drawing


def test_the_recovery_begins_where_pruning_ended() -> None:
    events = [
        {"event": "epoch", "phase": "prune", "stage": 0, "epoch": 1, "dense_epochs": 1.0, "val_error": 9.0},
        {"event": "stage", "stage": 0, "val_error": 20.0},
        {"event": "epoch", "phase": "finetune", "epoch": 1, "dense_epochs": 1.5, "val_error": 8.0},
    ]
    recovery = next(chart for chart in run_charts(gather_run(events)) if chart.title == "Recovery")
    assert "after stage 1: 20.00 %" in recovery.drawing and "9.00 %" not in recovery.drawing


def test_a_finished_run_has_all_charts_and_its_stages_are_marked(finished: Path) -> None:
    charts = run_charts(gather_run(read_events(finished / "events.jsonl")))
    assert [chart.title for chart in charts] == ["Validation error", "Recovery", "Loss", "KL", "Undecided"]
    assert [chart.wide for chart in charts] == [True, False, False, False, False]
    assert charts[0].drawing.count('class="mark"') == 25
    assert "cost, dense-epoch equivalents" in charts[0].drawing
    assert ">prune<" in charts[0].drawing and ">fine-tune<" in charts[0].drawing
    assert "prune stage 1 epoch 1: " in charts[2].drawing


def test_a_run_without_values_has_no_charts() -> None:
    assert run_charts(gather_run([{"event": "start"}, {"event": "epoch"}])) == []
