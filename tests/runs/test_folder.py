"""The folder of a run: who knows its file names, and in which state it says it is."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import rbprune
from rbprune import models
from rbprune.errors import CheckpointError, ConfigError
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import load_recipe
from rbprune.utils import files

SOURCES = Path(rbprune.__file__).parent
NAMES = {
    path.name
    for path in (
        RunFolder("x").settings_file,
        RunFolder("x").events_file,
        RunFolder("x").tensorboard,
        RunFolder("x").checkpoints,
        RunFolder("x").plan_file,
        RunFolder("x").weights_file,
        RunFolder("x").report_file,
        RunFolder("x").summary_file,
    )
}
LATER: set[str] = set()
"""Modules below ``runs`` that are still to be handed paths instead of the folder; this set shrinks to nothing."""
EVENTS = [{"event": "start"}, {"event": "epoch", "epoch": 1}, {"event": "epoch", "epoch": 2}]


def spelled(source: Path) -> Iterator[str]:
    """File names of a run that are written out in a module, other than in a sentence."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and Path(node.value).name in NAMES:
            yield f"{source.relative_to(SOURCES)}:{node.lineno}: {node.value!r}"


def test_its_files_have_the_names_that_old_runs_have() -> None:
    assert {
        "config.toml",
        "events.jsonl",
        "tb",
        "checkpoints",
        "plan.json",
        "model.safetensors",
        "report.html",
        "summary.json",
    } == NAMES


def test_nobody_else_spells_a_file_name_of_a_run() -> None:
    owner = SOURCES / "runs" / "folder.py"
    others = [p for p in sorted(SOURCES.rglob("*.py")) if p != owner and p.relative_to(SOURCES).as_posix() not in LATER]
    assert [place for source in others for place in spelled(source)] == []
    assert len(list(spelled(owner))) == len(NAMES), "the search finds what there is"


def test_it_is_a_run_from_its_settings_on_and_finished_with_its_summary(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "b")
    assert not run.is_run and not run.is_finished and run.read_summary() is None
    with pytest.raises(ConfigError, match=r"is no run folder \(it has no config.toml\)"):
        run.read_settings()
    with pytest.raises(CheckpointError, match=r"is no run folder \(it has no events.jsonl\)"):
        run.read_events()
    config = load_recipe("demo", ["seed=7"])
    run.begin(config)
    assert run.is_run and not run.is_finished
    assert run.read_settings() == config
    run.write_events(EVENTS)
    run.checkpoints.mkdir()
    assert not run.has_checkpoint
    (run.checkpoints / "ckpt-000000").mkdir()
    assert run.has_checkpoint
    run.finish({"seed": 7})
    assert run.is_finished and run.read_summary() == {"seed": 7}
    assert not run.checkpoints.exists()
    assert "<html" in run.report_file.read_text()


def test_a_folder_that_holds_something_is_refused_with_advice(tmp_path: Path) -> None:
    RunFolder(tmp_path).check_empty("never said")
    RunFolder(tmp_path / "new").check_empty("never said")
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="exists and is not empty; go away"):
        RunFolder(tmp_path).check_empty("go away")
    with pytest.raises(ConfigError, match="exists and is not empty"):
        RunFolder(tmp_path / "mine.txt").check_empty("go away")


def test_events_after_a_checkpoint_are_forgotten_and_a_torn_line_with_them(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_events(EVENTS)
    with run.events_file.open("a") as file:
        file.write('{"event": "epo')
    assert run.read_events() == EVENTS
    run.forget_events_after(2)
    assert [json.loads(line) for line in run.events_file.read_text().splitlines()] == EVENTS[:2]
    run.forget_events()
    run.forget_events()
    assert not run.events_file.exists()


def test_the_summary_is_the_last_thing_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    plain = files.write_atomic

    def watched(path: Path, content: str | bytes) -> Path:
        written.append(path.name)
        return plain(path, content)

    monkeypatch.setattr("rbprune.runs.folder.write_atomic", watched)
    run, model = RunFolder(tmp_path), models.build("lenet5")
    run.begin(load_recipe("demo"))
    run.write_events(EVENTS)
    run.write_network(model, rbprune.trace(model, torch.zeros(1, 1, 28, 28)).plan())
    run.finish({})
    assert written == ["config.toml", "events.jsonl", "model.safetensors", "plan.json", "summary.json"]
    assert run.report_file.stat().st_mtime_ns <= run.summary_file.stat().st_mtime_ns
