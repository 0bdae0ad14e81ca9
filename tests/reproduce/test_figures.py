"""Figures: they show what a run logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbprune.errors import CheckpointError
from rbprune.reproduce.figures import draw, read_run, recovery


def test_what_is_no_rate_is_not_counted_as_one(folder: Path) -> None:
    run = read_run(folder / "demo-rbp")
    for site in run.sites:
        site.diagnostic = "-log SNR"
    assert draw("rates", {"sbp": run})[0].note == "-log SNR instead of rates"


def test_figures_show_what_the_run_logged(folder: Path) -> None:
    events = [json.loads(line) for line in (folder / "demo-rbp" / "events.jsonl").read_text().splitlines()]
    stages = [event for event in events if event["event"] == "stage"]
    rates = [rate for stage in stages for values in stage["values"].values() for rate in values]
    summary = json.loads((folder / "demo-rbp" / "summary.json").read_text())
    one = {"small": read_run(folder / "demo-rbp")}
    (shown,) = draw("rates", one)
    inside = sum(0.1 <= rate <= 0.9 for rate in rates)
    assert shown.note.startswith(f"{100 * inside / len(rates):.1f} % of {len(rates):,} channels")
    assert [name for name, _, _ in shown.parts] == list(summary["channels"])
    (bars,) = draw("channels", one)
    before, after = (sum(pair[k] for pair in summary["channels"].values()) for k in (0, 1))
    assert bars.note == f"{after} of {before}"
    for width in bars.drawing.split("</svg>")[:2]:  # drawn for a wide and for a narrow page
        assert width.count("<rect") == 2 * len(summary["channels"])
    points = recovery(one["small"])
    assert points[0] == (0.0, stages[-1]["val_error"])
    assert points[-1] == (2.0, summary["val_error_after"])
    (curve,) = draw("finetune", one)
    assert f"small {summary['val_error_after']:.2f} %" in curve.drawing


def test_what_is_no_run_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no run folder"):
        read_run(tmp_path)
