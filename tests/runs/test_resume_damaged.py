"""Resuming what was damaged, changed, taken by another process or deleted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rbprune.errors import CheckpointError, WriteError
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import changed_settings, resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rbprune.train.phase import PhaseRun
from rbprune.utils.live_processes import ProcessId
from tests.runs.quick import QUICK, comparable, digest, events, quiet, summary_of
from tests.utils.full_disk import full_disk


@pytest.mark.parametrize("lacks", ["a weight", "a channel too many", "what its phase had"])
def test_a_checkpoint_that_cannot_be_restored_is_passed_over_and_said(whole: Path, copied: Path, lacks: str) -> None:
    """It is whole, but of another version, or of another network."""
    found = load_checkpoint(copied / "checkpoints")[0]
    tensors, values = dict(found.tensors), json.loads(json.dumps(found.values))
    if lacks == "a weight":
        del tensors["model.conv1.weight"]
    elif lacks == "a channel too many":
        values["sites"]["conv1"]["kept"] = values["sites"]["conv1"]["kept"][1:]
    else:
        del values["phase"]["meter"]
    save_checkpoint(copied / "checkpoints", Checkpoint(tensors, values))
    console = quiet()
    resume(copied, console=console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "cannot be restored" in said and "falling back to the one before it" in said
    assert any(e["event"] == "warning" and "cannot be restored" in e["message"] for e in events(copied))
    assert digest(copied) == digest(whole)
    assert comparable(copied)[-1] == comparable(whole)[-1]


def test_a_damaged_log_is_put_back_from_the_checkpoint(whole: Path, copied: Path) -> None:
    lines = (copied / "events.jsonl").read_text().splitlines()
    lines[3] = lines[3].replace('"loss": ', '"loss": 7')
    del lines[4]
    (copied / "events.jsonl").write_text("\n".join(lines))
    resume(copied, console=quiet())
    assert comparable(copied) == comparable(whole)


def test_settings_that_were_changed_since_are_said(copied: Path) -> None:
    config = copied / "config.toml"
    config.write_text(config.read_text().replace("distill = 0.3", "distill = 0.7"))
    console = quiet()
    resume(copied, console=console)
    said = console.file.getvalue().replace("\n", " ")  # type: ignore[attr-defined]
    assert "config.toml was changed since the run began: finetune.distill = 0.7, which was 0.3" in said


def test_settings_that_are_only_written_otherwise_are_the_same(copied: Path) -> None:
    """A run that starts over from its settings writes numbers as it has read them."""
    config = copied / "config.toml"
    text = config.read_text()
    assert "epochs = 3.0\n" in text
    config.write_text(text.replace("epochs = 3.0\n", "epochs = 3 # as before\n"))
    assert changed_settings(RunFolder(copied), events(copied)) == []


def test_settings_that_were_changed_before_the_first_checkpoint_are_said(copied: Path) -> None:
    shutil.rmtree(copied / "checkpoints")
    config = copied / "config.toml"
    config.write_text(config.read_text().replace("distill = 0.3", "distill = 0.7"))
    console = quiet()
    resume(copied, console=console)
    assert "was changed since the run began" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_that_another_process_works_on_is_refused(copied: Path) -> None:
    other = ProcessId.own()
    fields = {"host": other.host, "pid": os.getppid(), "began": None, "command": ["rbprune", "resume", str(copied)]}
    (copied / "run.lock").write_text(json.dumps(fields))
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    with pytest.raises(CheckpointError, match=f"process {os.getppid()} works on .* already"):
        resume(copied, console=quiet())
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


def test_a_run_that_was_killed_while_it_started_is_started_anew(tmp_path: Path, whole: Path) -> None:
    """Before its settings were whole: resume gives the command, and the command works."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.toml.999999999.tmp").write_text("seed = ")
    fields = {"host": ProcessId.own().host, "pid": 999999999, "began": 5, "command": ["rbprune", "prune", "demo"]}
    (folder / "run.lock").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match="nothing was trained yet in .*give again: rbprune prune demo$"):
        resume(folder, console=quiet())
    start(load_recipe("demo", QUICK), folder, console=quiet())
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
    assert digest(folder) == digest(whole)


def test_checkpoints_that_a_kill_left_behind_a_finished_run_go(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    (folder / "checkpoints" / "ckpt-000007").mkdir(parents=True)
    (folder / ".summary.json.999999999.tmp").write_text("{")
    assert resume(folder, console=quiet()) == summary_of(whole)
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}


def test_a_run_killed_between_its_sums_and_its_summary_goes_on(copied: Path, whole: Path) -> None:
    shutil.copy(whole / "SHA256SUMS", copied)
    resume(copied, console=quiet())
    assert digest(copied) == digest(whole) and RunFolder(copied).check_files() == []


def test_a_finished_run_without_its_summary_is_not_run_over(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    (folder / "summary.json").unlink()
    with pytest.raises(CheckpointError, match="summary.json is missing from a finished run; copy it anew, or"):
        resume(folder, console=quiet())
    assert digest(folder) == digest(whole)


def test_a_folder_that_is_deleted_while_it_runs_is_named(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = PhaseRun._train_step

    def deleting(self: PhaseRun, part: Any) -> Any:
        shutil.rmtree(copied, ignore_errors=True)
        return plain(self, part)

    monkeypatch.setattr(PhaseRun, "_train_step", deleting)
    said = rf"cannot write {copied}/.*No such file or directory; its folder is gone.*give the same command again"
    with pytest.raises(WriteError, match=said):
        resume(copied, console=quiet())
    assert not copied.exists(), "it is not made again"


def test_a_disk_that_fills_up_is_named_and_the_run_goes_on_when_there_is_room(copied: Path, whole: Path) -> None:
    target = copied / "model.safetensors"
    said = rf"cannot write {target}: No space left on device; make room .*; then go on with: rbprune resume"
    with full_disk(target.name), pytest.raises(WriteError, match=said):
        resume(copied, console=quiet())
    assert not target.exists()
    resume(copied, console=quiet())
    assert digest(copied) == digest(whole)
