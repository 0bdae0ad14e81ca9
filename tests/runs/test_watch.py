"""Watching a run from outside: the state that it is in, also when its process dies, and what is known of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rbprune.errors import CheckpointError
from rbprune.logging.events import EventLog
from rbprune.runs import watch
from rbprune.runs.folder import RunFolder
from rbprune.runs.lock import locked
from rbprune.runs.watch import RunWatch
from rbprune.utils.live_processes import ProcessId
from tests.report.fake import write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was killed while it fine-tuned."""
    (tmp_path / "config.toml").write_text("seed = 0")
    write_run(tmp_path, until="finetune")
    return tmp_path


def hold(folder: Path, process: ProcessId) -> None:
    """Write the lock of a process."""
    values = {"host": process.host, "pid": process.pid, "began": process.began, "command": ["rbprune", "prune"]}
    (folder / "run.lock").write_text(json.dumps(values))


def ended() -> ProcessId:
    """A process of this machine that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return ProcessId(ProcessId.own().host, child.pid, 1)


def test_every_state_is_told_apart(folder: Path) -> None:
    watched = RunWatch(folder)
    assert watched.status().state == "stopped"
    with locked(RunFolder(folder), ["rbprune", "resume"]):
        status = watched.status()
        assert status.state == "running" and not status.is_over
        process = status.to_dict()["process"]
        assert process["pid"] == ProcessId.own().pid and process["command"] == ["rbprune", "resume"]
    hold(folder, ended())
    assert watched.status().state == "dead" and watched.status().is_over
    hold(folder, ProcessId("another-machine", 1, 1))
    assert watched.status().state == "elsewhere" and not watched.status().is_over
    (folder / "run.lock").unlink()
    (folder / "summary.json").write_text("{}")
    assert watched.status().state == "finished"


def test_a_run_that_has_only_its_lock_is_starting(tmp_path: Path) -> None:
    hold(tmp_path, ProcessId.own())
    status = RunWatch(tmp_path).status()
    assert status.state == "starting" and status.to_dict()["seconds_left"] is None


def test_what_is_known_is_what_the_log_says(folder: Path) -> None:
    told = RunWatch(folder).status().to_dict()
    last = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()][-1]
    assert (told["phase"], told["epoch"], told["epochs"], told["stages"], told["stages_done"]) == (
        "finetune",
        3,
        40,
        25,
        25,
    )
    assert told["val_error"] == last["val_error"] and told["val_error_before"] == 6.8 and told["loss"] == last["loss"]
    assert told["ratios"]["macs"] == pytest.approx(2.1, abs=1e-3) and told["verdict"] is None
    assert told["silent_seconds"] == pytest.approx(time.time() - last["time"], abs=5)
    assert told["seconds_left"] is None, "nobody works on it"
    with locked(RunFolder(folder)):
        assert RunWatch(folder).status().to_dict()["seconds_left"] == pytest.approx(37 * 61)
    assert json.loads(json.dumps(told)) == told


def test_new_events_are_seen_and_a_new_log_replaces_the_old(folder: Path) -> None:
    watched = RunWatch(folder)
    assert watched.status().to_dict()["epoch"] == 3
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "epoch", "phase": "finetune", "epoch": 4, "val_')
    assert watched.status().to_dict()["epoch"] == 3 and watched.status().damaged == 0
    with (folder / "events.jsonl").open("a") as file:
        file.write('error": 7.5}\n')
    assert watched.status().to_dict()["val_error"] == 7.5
    (folder / "events.jsonl").unlink()
    write_run(folder, until="stage")
    assert watched.status().to_dict()["stages_done"] == 1


def test_a_search_is_watched_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text("seed = 0")
    step = tmp_path / "steps" / "01-1.5x"
    step.mkdir(parents=True)
    (step / "config.toml").write_text("seed = 0")
    write_run(step, sites=2, until="stage")
    watched = RunWatch(tmp_path)
    with locked(RunFolder(step)):
        status = watched.status()
        assert (status.state, status.step) == ("running", "01-1.5x") and len(status.record.stages) == 1
    (step / "summary.json").write_text("{}")
    assert watched.status().state == "between steps"
    monkeypatch.setattr(watch, "PATIENCE", 0.0)
    assert watched.status().state == "stopped", "the next step should have begun long ago"
    shutil.copy(step / "events.jsonl", tmp_path / "events.jsonl")
    (tmp_path / "summary.json").write_text("{}")
    status = watched.status()
    assert (status.state, status.step) == ("finished", None)


def test_a_folder_without_a_run_is_refused_and_those_below_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no run folder .*; give the --out of"):
        RunWatch(tmp_path / "nowhere")
    (tmp_path / "step-01").mkdir()
    (tmp_path / "step-01" / "config.toml").write_text("")
    with pytest.raises(CheckpointError, match="there are runs below it: step-01"):
        RunWatch(tmp_path)


def test_nonsense_in_the_log_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    log = EventLog(tmp_path / "events.jsonl")
    for value in (None, "?", [1], {"a": 1}, -1):
        log.write("start", stages=value, config=value, sites=value, macs=value)
        log.write("epoch", phase=value, epoch=value, epochs=value, dense_epochs=value, seconds=value, stage=value)
        log.write("stage", stage=value, stages=value, channels=value, seconds=value)
        for phase in ("pretrain", "prune", "finetune"):
            log.write("epoch", phase=phase, epoch=value, epochs=value, dense_epochs=value, seconds=value, stage=value)
            hold(tmp_path, ProcessId.own())
            assert json.dumps(RunWatch(tmp_path).status().to_dict())
