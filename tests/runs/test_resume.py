"""Resuming a run that was killed or asked to stop: it ends with the same bits."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from rbprune.cli import main
from rbprune.errors import CheckpointError
from rbprune.runs.resume import resume
from rbprune.settings.recipe import load_recipe
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
