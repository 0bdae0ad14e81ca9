"""The choice of precision in whole runs: told, kept, repeated."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.train import precision
from rbprune.train.stream import LoaderStream
from tests.networks import stripes, tiny_cnn
from tests.runs.quick import QUICK, digest, events, quiet, stop_after
from tests.train.small import small_runner
from tests.train.test_precision import LAST, PLAIN, invent


def test_a_run_tells_its_choice_in_a_line_and_an_event_and_keeps_it_in_its_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    invent(monkeypatch, {PLAIN: 1.31, LAST: 1.0}, bf16=False)
    monkeypatch.setattr(precision, "SMALL_STEP", 0)
    console = Console(file=io.StringIO(), width=200)
    runner = small_runner(console=console)
    assert (runner.settings.runtime.precision, runner.settings.runtime.channels_last) == ("32-true", True)
    runner.run()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    why = "1.31x faster than contiguous here; bf16 is not computed by this processor"
    assert text.count(f"precision: float32, channels-last ({why})\n") == 1
    (event,) = [e for e in runner.journal.events if e["event"] == "precision"]
    assert (event["precision"], event["channels_last"], event["why"]) == ("32-true", True, why)
    assert event["step_seconds"] == {"float32, contiguous": 1.31, "float32, channels-last": 1.0}
    assert runner.journal.events[0]["config"]["runtime"]["channels_last"] is True


def test_a_tiny_network_is_not_measured_by_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = invent(monkeypatch, {})
    runner = small_runner()
    assert asked == []
    assert (runner.settings.runtime.precision, runner.settings.runtime.channels_last) == ("32-true", False)


def test_bf16_on_a_processor_without_it_is_a_warning_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    invent(monkeypatch, {}, bf16=False)
    tables = {"runtime": {"precision": "bf16-mixed", "channels_last": False}, "prune": {"epochs": 0}}
    runner = small_runner({**tables, "finetune": {"epochs": 0}})
    runner.run()
    (warning,) = [e for e in runner.journal.events if e["event"] == "warning" and "bf16" in e["message"]]
    assert "14 times slower" in warning["message"]


def test_a_resumed_run_and_a_repeat_from_its_settings_keep_the_choice_and_do_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = invent(monkeypatch, {PLAIN: 1.31, LAST: 1.0}, bf16=False)
    monkeypatch.setattr(precision, "SMALL_STEP", 0)
    recipe = load_recipe("demo", [*QUICK, "runtime.accelerator=cpu", "pretrain.epochs=1"])
    assert (recipe.runtime.precision, recipe.runtime.channels_last) == ("auto", "auto")
    stop_after(15, recipe, tmp_path / "run", monkeypatch)
    assert len(asked) == 1
    decided = RunFolder(tmp_path / "run").read_settings()
    assert (decided.runtime.precision, decided.runtime.channels_last) == ("32-true", True)
    resume(tmp_path / "run", console=quiet())
    start(decided, tmp_path / "repeat", console=quiet())
    assert len(asked) == 1, "what was decided is not measured again"
    assert digest(tmp_path / "run") == digest(tmp_path / "repeat")
    assert sum(event["event"] == "precision" for event in events(tmp_path / "run")) == 1


def test_a_run_that_goes_on_where_bf16_is_not_computed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = invent(monkeypatch, {})
    given = ("pretrain.epochs=1", "prune.epochs=0", "finetune.epochs=0", "runtime.accelerator=cpu")
    bf16 = ("runtime.precision=bf16-mixed", "runtime.channels_last=false")
    stop_after(5, load_recipe("demo", [*QUICK, *given, *bf16]), tmp_path / "run", monkeypatch)
    assert not any("bf16" in event.get("message", "") for event in events(tmp_path / "run"))
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    resume(tmp_path / "run", console=quiet())
    assert asked == []
    assert sum("14 times slower" in event.get("message", "") for event in events(tmp_path / "run")) == 1


@pytest.mark.parametrize("own", [False, True], ids=["global generator", "generator of the loader"])
def test_a_measured_run_ends_with_the_bits_of_one_that_was_not_measured(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a loader that shuffles and a network that drops, and every candidate really tried."""
    monkeypatch.setattr(precision, "WORTH", 1e9)
    measured: list[int] = []
    time_steps = precision.time_steps
    monkeypatch.setattr(precision, "time_steps", lambda *a, **k: (measured.append(1), time_steps(*a, **k))[1])

    def weights(small: float) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(precision, "SMALL_STEP", small)
        torch.manual_seed(0)
        model = nn.Sequential(*tiny_cnn()[:8], nn.Dropout(0.3), *tiny_cnn()[8:])
        data = TensorDataset(*stripes(64))
        loader = DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(1) if own else None)
        stream = LoaderStream(loader)
        small_runner(model=model, train=lambda batch_size: stream, val=None).run()
        return model.state_dict()

    plain, other = weights(float("inf")), weights(0)
    assert len(measured) == 1
    assert all(torch.equal(value, plain[name]) for name, value in other.items())
