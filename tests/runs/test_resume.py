"""Resuming a run that was killed or asked to stop: it ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rbprune.cli import main
from rbprune.errors import CheckpointError, WriteError
from rbprune.runs import resume as resume_module
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import changed_settings, resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rbprune.train.phase import PhaseRun
from rbprune.train.stream import Stream
from rbprune.utils.interrupt import Interrupted, awaited
from rbprune.utils.live_processes import ProcessId, mark
from tests.runs.quick import QUICK, comparable, digest, events, quiet, signalled, stop_after, summary_of


@pytest.mark.parametrize("moment", ['"pretrain"', '"stage": 1', '"finetune"'])
def test_killed_and_resumed_it_ends_with_the_same_bits(whole: Path, tmp_path: Path, moment: str) -> None:
    folder = tmp_path / "run"
    assert signalled(signal.SIGKILL, moment, folder).returncode == -signal.SIGKILL
    assert not (folder / "summary.json").exists()
    assert not (folder / "model.safetensors").exists()
    summary = resume(folder, console=quiet())
    assert digest(folder) == digest(whole)
    assert comparable(folder) == comparable(whole)
    assert any(event["event"] == "resume" for event in events(folder))
    reference = summary_of(whole)
    for key in (
        "error_before",
        "error_after",
        "macs_after",
        "channels",
        "undecided",
        "dense_epochs",
        "val_error_after",
    ):
        assert summary[key] == reference[key], key


@pytest.mark.parametrize("steps", [10, 20, 50, 51, 80, 139])
def test_interrupted_between_any_two_steps(
    whole: Path, tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the last step of an epoch, of a stage and of the run, before anything more was written."""
    stop_after(steps, load_recipe("demo", QUICK), tmp_path / "run", monkeypatch)
    resume(tmp_path / "run", console=quiet())
    assert digest(tmp_path / "run") == digest(whole)
    assert comparable(tmp_path / "run") == comparable(whole)


def test_it_does_not_go_on_with_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples would be divided anew, and validation ones have been trained on."""
    folder = tmp_path / "run"
    stop_after(20, load_recipe("demo", [*QUICK, "data.limit=500"]), folder, monkeypatch)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("limit = 500", "limit = 499"))
    with pytest.raises(CheckpointError, match=r"began with 500 training examples, and now there are 499"):
        resume(folder, console=quiet())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(
    whole: Path, tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    done = signalled(number, '"stage": 0', folder)
    assert done.returncode == 128 + number, done.stderr
    assert f"rbprune resume {folder}" in done.stderr.replace("\n", "")
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(folder), "--json"])
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["macs_ratio"] > 1
    assert digest(folder) == digest(whole)


def test_a_damaged_checkpoint_is_passed_over_and_said(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert signalled(signal.SIGKILL, '"stage": 1', folder).returncode == -signal.SIGKILL
    newest = max((folder / "checkpoints").glob("ckpt-*")) / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    console = quiet()
    resume(folder, console=console)
    assert "is damaged" in console.file.getvalue()  # type: ignore[attr-defined]
    assert any(e["event"] == "warning" and "is damaged" in e["message"] for e in events(folder))
    assert digest(folder) == digest(whole)


def test_killed_before_the_first_checkpoint_it_starts_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text((whole / "config.toml").read_text())
    (folder / "events.jsonl").write_text('{"event": "start"}\n{"event": "epo')
    (folder / "checkpoints" / ".writing").mkdir(parents=True)
    (folder / "checkpoints" / ".writing" / "state.safetensors").write_bytes(b"half")
    resume(folder, console=quiet())
    assert digest(folder) == digest(whole)


def test_resuming_a_finished_run_gives_its_summary(whole: Path) -> None:
    before = digest(whole)
    assert resume(whole, console=quiet()) == summary_of(whole)
    assert digest(whole) == before


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no run folder"):
        resume(tmp_path / "nowhere", console=quiet())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its second stage; nobody may change it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        stop_after(55, load_recipe("demo", QUICK), folder, patched)
    return folder


@pytest.fixture
def copied(stopped: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


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
    """The kernel's own error: under its temporary name the file is the device that is always full."""
    target = copied / "model.safetensors"
    (copied / f".{target.name}.{mark()}.tmp").symlink_to("/dev/full")
    said = rf"cannot write {target}: No space left on device; make room .*; then go on with: rbprune resume"
    with pytest.raises(WriteError, match=said):
        resume(copied, console=quiet())
    assert not target.exists()
    resume(copied, console=quiet())
    assert digest(copied) == digest(whole)


class HangingStream:
    """A stream whose third batch does not come; a signal comes instead."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.size, self.steps = stream, stream.size, stream.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        return awaited(self.batches(number, start))

    def batches(self, number: int, start: int) -> Iterator[Any]:
        for index, batch in enumerate(self.stream.epoch(number, start)):
            if index == 2:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
                time.sleep(60)
            yield batch


def test_a_loader_that_hangs_does_not_hold_up_the_first_signal(
    copied: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is taken where it waits, so that nothing is lost."""
    monkeypatch.setattr("rbprune.utils.interrupt.PATIENCE", 0.3)
    plain = PhaseRun.run_epoch

    def hanging(self: PhaseRun) -> Iterator[Any]:
        self.stream = HangingStream(self.stream)
        return plain(self)

    began = time.monotonic()
    with monkeypatch.context() as patched, pytest.raises(Interrupted, match="go on with: rbprune resume") as stop:
        patched.setattr(PhaseRun, "run_epoch", hanging)
        resume(copied, console=quiet())
    assert stop.value.exit_code == 143 and time.monotonic() - began < 30
    resume(copied, console=quiet())
    assert digest(copied) == digest(whole)
    assert comparable(copied) == comparable(whole)


@pytest.mark.parametrize("moment", ["make_runner", "write_network"])
def test_a_signal_at_the_start_or_while_the_results_are_written(
    copied: Path, whole: Path, moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code, and what to do next: go on, or nothing because all is there."""
    place = resume_module if moment == "make_runner" else RunFolder
    plain = getattr(place, moment)

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return plain(*given)

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as stop:
        patched.setattr(place, moment, interrupted)
        main(["resume", str(copied)])
    assert stop.value.code == 143
    said = capsys.readouterr().err.replace("\n", "")
    if moment == "make_runner":
        assert f"interrupted; go on with: rbprune resume {copied}" in said
        resume(copied, console=quiet())
    else:
        assert f"interrupted at its end; the run in {copied} is complete" in said
    assert digest(copied) == digest(whole)
    assert {path.name for path in copied.iterdir()} == {path.name for path in whole.iterdir()}
