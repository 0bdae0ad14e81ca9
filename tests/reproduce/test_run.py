"""Runs behind a table: done once, shared, and used with a remark when they were made with other settings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rbprune.errors import ConfigError
from rbprune.reproduce.experiments import Experiment, PaperRun
from rbprune.reproduce.run import equal_terms
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


_OWN = ("prune.method=uniform", "prune.least=0.001", "seed=1")
BESIDE = PaperRun("demo-uniform", "uniform L1, the same MACs as RBP", "demo", _OWN, "demo-rbp", same_macs=True)


def test_a_rival_spends_what_the_run_beside_it_spent_and_meets_its_macs(folder: Path, tmp_path: Path) -> None:
    for name in ("demo-dense", "demo-rbp"):
        shutil.copytree(folder / name, tmp_path / name)
    found = run(tmp_path, Experiment("cifar10", "A table", (RBP, BESIDE)))
    assert not found.notes and not found.remarks, "another seed starts from the same dense network"
    ours, theirs = found.summaries["demo-rbp"], found.summaries["demo-uniform"]
    assert theirs["macs_ratio"] == pytest.approx(ours["macs_ratio"], rel=0.1), "the demo's layers are narrow"
    assert theirs["macs_ratio"] >= ours["macs_ratio"] * (1 - 1e-9)
    spent, allowed = (each["dense_epochs"]["prune"] + each["dense_epochs"]["finetune"] for each in (theirs, ours))
    assert spent == pytest.approx(allowed, rel=0.1)
    names = [tuple(row[:2]) for row in found.tables[0].rows]
    assert names[-1] == ("uniform L1, the same MACs as RBP", "here"), "no method of the paper's"


def test_equal_terms_need_the_run_beside() -> None:
    done = {"demo-rbp": {"dense_epochs": {"prune": 0.5, "finetune": 1.0}, "macs_ratio": 3.0}}
    assert equal_terms(RBP, (), done) == []
    assert equal_terms(BESIDE, (), done) == ["budget=1.5", "prune.macs_ratio=3.0"]
    assert equal_terms(BESIDE, ("budget=2",), done) == ["prune.macs_ratio=3.0"], "a budget that is given holds for all"
    with pytest.raises(ConfigError, match="demo-rbp failed"):
        equal_terms(BESIDE, (), {})
