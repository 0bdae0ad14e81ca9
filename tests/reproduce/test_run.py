"""Runs behind a table: done once, shared, and used with a remark when they were made with other settings."""

from __future__ import annotations

import shutil
from pathlib import Path

from rbprune.reproduce.experiments import Experiment
from tests.reproduce.small import IBP, QUICK, RBP, run


def test_runs_are_done_once_and_shared(folder: Path) -> None:
    files = [folder / name / "summary.json" for name in ("demo-dense", "demo-rbp", "demo-ibp")]
    times = [file.stat().st_mtime_ns for file in files]
    found = run(folder, Experiment("rates", "Rates", (RBP,)))
    assert times == [file.stat().st_mtime_ns for file in files]
    assert len(found.figures) == 1


def test_a_run_made_with_other_settings_is_used_and_the_page_says_so(folder: Path) -> None:
    assert run(folder, Experiment("rates", "Rates", (RBP,))).remarks == [], (
        "nor is what was left to the machine another"
    )
    changed = (*QUICK, "finetune.epochs=7")
    found = run(folder, Experiment("rates", "Rates", (RBP,)), changed)
    assert found.remarks == ["demo-rbp: made before, with finetune.epochs = 2.0 (asked for: 7.0)"]


def test_a_dense_network_of_other_settings_is_used_and_the_page_says_so(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "demo-dense", tmp_path / "demo-dense")
    changed = (*QUICK, "pretrain.epochs=7")
    found = run(tmp_path, Experiment("rates", "Rates", (RBP, IBP)), changed)
    ((remark),) = found.remarks
    assert remark.startswith("demo-dense: made before, with pretrain.epochs = ")
    assert remark.endswith("(asked for: 7.0)")
