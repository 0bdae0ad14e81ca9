"""Runs as folders: started, killed, resumed to the same bits."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import rbprune
from rbprune import models
from rbprune.errors import CheckpointError, ConfigError, DataError, RbpruneError
from rbprune.runs import session
from rbprune.runs.session import resume, start
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Config
from rbprune.train.runner import Runner
from rbprune.train.summary import summarise
from rbprune.utils.interrupt import Interrupted

QUICK = [
    "data.limit=640",
    "data.val=100",
    "pretrain.epochs=2",
    "prune.epochs=3",
    "prune.rate_lr=0.1",
    "finetune.epochs=3",
    "finetune.distill=0.3",
    "runtime.recalibrate=3",
    "runtime.checkpoint_seconds=0.2",
    "runtime.threads=1",
]
FILES = {"config.toml", "events.jsonl", "plan.json", "model.safetensors", "summary.json", "report.html", "tb"}


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(load_recipe("demo", QUICK), folder, console=quiet())
    return folder


def launch(folder: Path, *extra: str) -> subprocess.Popen[str]:
    sets = [word for item in QUICK for word in ("--set", item)]
    command = [sys.executable, "-m", "rbprune", "prune", "demo", "--out", str(folder), *sets, *extra]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stop_after(steps: int, config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until a signal comes between two steps."""
    plain, taken = Runner._between_steps, 0

    def stop(self: Runner, signals: Any) -> None:
        nonlocal taken
        taken += 1
        if taken == steps:
            signals.received = signal.SIGTERM
        plain(self, signals)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(Runner, "_between_steps", stop)
        start(config, folder, console=quiet())


def wait_for(folder: Path, what: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        events = folder / "events.jsonl"
        if list((folder / "checkpoints").glob("ckpt-*")) and events.is_file() and what in events.read_text():
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    raise AssertionError(f"no {what} within two minutes")


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def comparable(folder: Path) -> list[dict[str, Any]]:
    volatile = {"time", "seconds", "images_per_second", "command", "versions"}
    kept = [e for e in events(folder) if e["event"] in ("epoch", "stage", "dense", "warning")]
    return [{key: value for key, value in event.items() if key not in volatile} for event in kept]


def test_a_run_is_a_folder(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == FILES
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["macs_ratio"] > 1
    assert summary["dense_epochs"]["pretrain"] == pytest.approx(2)
    assert set(summary["undecided"]) == {"conv1", "conv2", "fc1"}
    assert summary["error_before"] is not None
    assert list((whole / "tb").glob("events.out.tfevents.*"))
    model = rbprune.load(whole, models.build("lenet5"))
    assert [model.conv1.out_channels, model.conv2.out_channels, model.fc1.out_features] == [
        after for _, after in summary["channels"].values()
    ]
    assert not [path for path in whole.rglob("*") if path.suffix in (".pt", ".pth", ".pkl", ".tmp")]


def test_what_is_reported_is_the_test_error_of_the_final_weights(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    model = rbprune.load(whole, models.build("lenet5")).eval()
    test = rbprune.data.load("mnist-subset").test
    wrong = 0
    with torch.no_grad():
        for x, y in test.batches(torch.arange(len(test)), 250, seed=0, augment=False):
            wrong += int((model(x).argmax(1) != y).sum())
    assert summary["error_after"] == pytest.approx(100 * wrong / len(test))


def test_the_test_set_is_looked_at_only_before_and_after(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other test labels must change nothing but the reported figures."""
    plain = session.load_data

    def shuffled(config: Any) -> Any:
        data = plain(config)
        data.test.labels.copy_(data.test.labels.roll(1))
        return data

    monkeypatch.setattr(session, "load_data", shuffled)
    summary = start(load_recipe("demo", QUICK), tmp_path / "run", console=quiet())
    assert summary["error_after"] > 50
    assert digest(tmp_path / "run") == digest(whole)


@pytest.mark.parametrize("moment", ['"pretrain"', '"stage": 1', '"finetune"'])
def test_killed_and_resumed_it_ends_with_the_same_bits(whole: Path, tmp_path: Path, moment: str) -> None:
    folder = tmp_path / "run"
    process = launch(folder)
    wait_for(folder, moment, process)
    process.kill()
    process.communicate()
    assert not (folder / "summary.json").exists()
    assert not (folder / "model.safetensors").exists()
    summary = resume(folder, console=quiet())
    assert digest(folder) == digest(whole)
    assert comparable(folder) == comparable(whole)
    assert any(event["event"] == "resume" for event in events(folder))
    reference = json.loads((whole / "summary.json").read_text())
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
    stop_after(steps, load_recipe("demo", [*QUICK, "runtime.checkpoint_seconds=1000"]), tmp_path / "run", monkeypatch)
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
def test_asked_to_stop_it_saves_and_says_how_to_go_on(whole: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    process = launch(folder)
    wait_for(folder, '"stage": 0', process)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"rbprune resume {folder}" in output.replace("\n", "")
    done = subprocess.run(
        [sys.executable, "-m", "rbprune", "resume", str(folder), "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["macs_ratio"] > 1
    assert digest(folder) == digest(whole)


def test_a_damaged_checkpoint_is_passed_over_and_said(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = launch(folder)
    wait_for(folder, '"stage": 1', process)
    process.kill()
    process.communicate()
    newest = max((folder / "checkpoints").glob("ckpt-*")) / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    console = quiet()
    resume(folder, console=console)
    assert "is damaged" in console.file.getvalue()  # type: ignore[attr-defined]
    assert any(e["event"] == "warning" and "is damaged" in e["message"] for e in events(folder))
    assert digest(folder) == digest(whole)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("prune.threshold=2", "prune.threshold is a rate between 0 and 1"),
        ("prune.noise=batch", "it needs prune.noise='example'"),
        ("prune.method=slimming", "slimming ranks by batch normalisation"),
        ("prune.options.gamma=1", "prune.options.gamma is no option of 'rbp'"),
    ],
)
def test_what_a_method_cannot_use_is_refused_before_anything_is_written(
    setting: str, message: str, tmp_path: Path
) -> None:
    given = ["prune.rates=fixed-point", setting, *(["prune.macs_ratio=2"] if "slimming" in setting else [])]
    with pytest.raises(RbpruneError, match=message):
        start(load_recipe("demo", given), tmp_path / "run", console=quiet())
    assert not (tmp_path / "run").exists()


def test_a_signal_at_the_very_end_lets_the_run_be_whole_and_stops_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return summarise(*args, **kwargs)

    monkeypatch.setattr("rbprune.train.runner.summarise", interrupted)
    with pytest.raises(Interrupted, match="interrupted at its end; the run in .* is complete"):
        start(load_recipe("demo", QUICK), tmp_path / "run", console=quiet())
    assert (tmp_path / "run" / "summary.json").is_file()


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
    assert resume(whole, console=quiet()) == json.loads((whole / "summary.json").read_text())
    assert digest(whole) == before


def test_bad_starts_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    with pytest.raises(ConfigError, match="exists and is not empty.*resume"):
        start(load_recipe("demo", QUICK), tmp_path / "full", console=quiet())
    with pytest.raises(DataError, match="data.path"):
        start(load_recipe("lenet5-mnist"), tmp_path / "a", console=quiet())
    with pytest.raises(DataError):
        start(load_recipe("lenet5-mnist", [f"data.path={tmp_path}/nowhere"]), tmp_path / "a", console=quiet())
    with pytest.raises(ConfigError, match="starts from a trained network"):
        config = load_recipe("demo", QUICK).model_copy(update={"pretrain": None})
        start(config, tmp_path / "a", console=quiet())
    assert not (tmp_path / "a").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious"]
    with pytest.raises(CheckpointError, match="is no run folder"):
        resume(tmp_path / "nowhere", console=quiet())
