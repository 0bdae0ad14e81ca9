"""Starting a run: what it leaves in its folder, what it reports, and what it refuses before anything is written."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import rbprune
from rbprune import models
from rbprune.errors import ConfigError, DataError, RbpruneError
from rbprune.runs import build
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.train.summary import summarise
from rbprune.utils.interrupt import Interrupted
from tests.runs.quick import QUICK, digest, quiet, summary_of

FILES = {
    *("config.toml", "events.jsonl", "plan.json", "model.safetensors", "mistakes.json", "summary.json", "report.html"),
    *("tb", "SHA256SUMS"),
}


def test_a_run_is_a_folder(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == FILES
    summary = summary_of(whole)
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
    summary = summary_of(whole)
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
    plain = build.load_data

    def shuffled(config: Any) -> Any:
        data = plain(config)
        data.test.labels.copy_(data.test.labels.roll(1))
        return data

    monkeypatch.setattr(build, "load_data", shuffled)
    summary = start(load_recipe("demo", QUICK), tmp_path / "run", console=quiet())
    assert summary["error_after"] > 50 > summary_of(whole)["error_after"]
    assert digest(tmp_path / "run") == digest(whole)


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
