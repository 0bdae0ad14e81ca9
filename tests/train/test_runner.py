"""A whole run in memory: its order, its signals, its checkpoints, what it refuses."""

from __future__ import annotations

import io
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rbprune.errors import ConfigError, ModelError, UnprunableError
from rbprune.runs.folder import RunFolder
from rbprune.train import runner as module
from rbprune.train.checkpoint import load_checkpoint
from rbprune.utils.interrupt import Interrupted, Signals
from tests.networks import tiny_cnn
from tests.train.small import STEPS, run_until, small_runner, small_stream


def told(runner: module.Runner) -> list[tuple[Any, ...]]:
    shown = {"epoch": ("phase", "stage", "epoch"), "stage": ("stage",), "warning": ("message",)}
    return [(e["event"], *(e[key] for key in shown.get(e["event"], ()))) for e in runner.journal.events]


def test_a_run_goes_stage_by_stage_and_then_fine_tunes() -> None:
    runner = small_runner({"finetune": {"epochs": 1.5}})
    summary = runner.run()
    assert [event for event in told(runner) if event[0] != "warning"] == [
        ("start",),
        ("precision",),
        ("dense",),
        ("epoch", "prune", 0, 1),
        ("stage", 0),
        ("epoch", "prune", 1, 1),
        ("stage", 1),
        ("epoch", "finetune", None, 1),
        ("epoch", "finetune", None, 2),
        ("done",),
    ]
    assert summary["channels"]["0"] == [6, runner.model[0].out_channels]  # type: ignore[index]
    assert runner.current is None
    assert runner.settings.prune.rates == "fixed-point", "what was left open is decided"


def test_pretraining_comes_first_and_may_be_all() -> None:
    tables: dict[str, Any] = {"model": {"weights": None}, "pretrain": {"epochs": 2, "lr": 0.01}, "task": "train"}
    runner = small_runner(tables)
    summary = runner.run()
    assert told(runner) == [
        ("start",),
        ("precision",),
        ("epoch", "pretrain", None, 1),
        ("epoch", "pretrain", None, 2),
        ("done",),
    ]
    assert (summary["macs_ratio"], summary["dense_epochs"]["pretrain"]) == (1.0, pytest.approx(2.0))
    assert summary["error_after"] == summary["val_error_after"]


def test_a_network_in_which_nothing_can_be_trained_is_refused() -> None:
    with pytest.raises(ModelError, match="all have requires_grad=False"):
        small_runner(model=tiny_cnn().requires_grad_(False))


@pytest.mark.parametrize(
    ("prune", "error"),
    [
        ({"method": "slimming", "macs_ratio": 1.1, "only": ["8"]}, UnprunableError),
        ({"method": "bmrs", "options": {"bits": 40}}, ConfigError),
        ({"threshold": 1.5}, ConfigError),
    ],
)
def test_what_a_method_refuses_it_refuses_before_any_training(prune: dict[str, Any], error: type[Exception]) -> None:
    model = tiny_cnn()
    with pytest.raises(error):
        small_runner({"prune": prune}, model=model)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_the_rehearsal_draws_nothing_and_leaves_nothing() -> None:
    model = tiny_cnn()
    runner = small_runner({"prune": {"method": "cp", "macs_ratio": 1.2}}, model=model)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    runner.pruner.rehearse()
    assert torch.equal(torch.rand(3), wanted)
    assert runner.pruner.dense is None, "a copy of a network that is not trained yet would be of no use"
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_generator_and_modes_are_those_of_before() -> None:
    model = tiny_cnn()
    model[1].eval()
    runner = small_runner(model=model)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    runner.run()
    assert torch.equal(torch.rand(3), wanted)
    assert model.training and not model[1].training


def test_a_signal_saves_and_names_the_command_to_go_on_with(tmp_path: Path) -> None:
    runner = small_runner(files=RunFolder(tmp_path))
    run_until(runner, 3)
    signals = Signals()
    signals.received = signal.SIGTERM
    with pytest.raises(Interrupted, match=f"interrupted; go on with: rbprune resume {tmp_path}") as stop:
        module.Runner._between_steps(runner, signals)
    assert stop.value.exit_code == 128 + signal.SIGTERM
    assert load_checkpoint(RunFolder(tmp_path).checkpoints)[0].values["phase"]["step"] == 3


def test_in_memory_nothing_is_saved_and_no_command_is_named() -> None:
    runner = small_runner()
    signals = Signals()
    signals.received = signal.SIGINT
    with pytest.raises(Interrupted, match=r"^interrupted$"):
        runner._between_steps(signals)


def test_processes_ask_each_other_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all at the same steps: one that asks alone would wait for ever."""
    runner, asked = small_runner(), []
    runner.current = runner._begin(runner.phases[0])
    monkeypatch.setattr(type(runner.engine), "world", 2)
    monkeypatch.setattr(runner.engine, "any", lambda flag: asked.append(runner.current.step))  # type: ignore[union-attr]
    for runner.current.step in range(1, 33):
        runner._between_steps(Signals())
    assert asked == [8, 16, 24, 32]
    monkeypatch.setattr(type(runner.engine), "world", 1)
    runner.current.step = 33
    runner._between_steps(Signals())
    assert asked[-1] == 33, "alone it costs nothing"
    assert runner.current.stage is not None
    runner.current.stage.abandon()


def test_checkpoints_are_made_when_it_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = small_runner({"runtime": {"checkpoint_seconds": 10}}, files=RunFolder(tmp_path))
    saved, clock = [], [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(module, "save_checkpoint", lambda folder, checkpoint: saved.append((clock[-1], folder)))
    runner._saved = clock[0]
    for moment in (105.0, 110.0, 110.5, 120.0, 121.0):
        clock.append(moment)
        runner._between_steps(Signals())
    assert saved == [(110.5, RunFolder(tmp_path).checkpoints), (121.0, RunFolder(tmp_path).checkpoints)]


def test_a_signal_when_all_is_done_is_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = small_runner()
    plain = runner._finish

    def finish() -> dict[str, Any]:
        signal.raise_signal(signal.SIGTERM)
        return plain()

    monkeypatch.setattr(runner, "_finish", finish)
    assert runner.run()["macs_ratio"] > 1
    assert runner.asked_to_stop == signal.SIGTERM


def test_damaged_checkpoints_are_told_when_a_run_goes_on(tmp_path: Path) -> None:
    first = small_runner(files=RunFolder(tmp_path))
    run_until(first, STEPS + 1)
    first._save()
    checkpoint, path, _ = load_checkpoint(RunFolder(tmp_path).checkpoints)
    console = Console(file=io.StringIO(), width=200)
    second = small_runner(console=console)
    second.restore(checkpoint, path.name, ["checkpoint ckpt-7 is damaged"])
    second.run()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "warning: checkpoint ckpt-7 is damaged" in text
    assert f"resuming from {path.name}" in text
    assert ("resume",) in told(second)


def test_the_test_data_are_those_that_count() -> None:
    """Before and after they are evaluated on, and the validation data only in between."""
    runner = small_runner(test=small_stream(32), val=None)
    summary = runner.run()
    assert summary["error_before"] is not None and summary["error_after"] is not None
    assert summary["val_error_after"] is None


@pytest.mark.parametrize(("budget", "warns"), [(0.3, True), (20.0, False)])
def test_pruning_that_leaves_no_budget_for_the_recovery_says_so(budget: float, warns: bool) -> None:
    runner = small_runner({"budget": budget})
    runner.run()
    told = [event["message"] for event in runner.journal.events if event["event"] == "warning"]
    spent = f"pruning took {runner.state.cost['prune']:.3g} of the budget of {budget:g} dense epochs"
    assert any(spent in message and "nothing is left for fine-tuning" in message for message in told) == warns
    assert (runner.state.cost["finetune"] == 0) == warns
