"""From settings to data, network and runner; nothing is written on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rbprune
from rbprune.errors import ConfigError
from rbprune.runs.build import EVALUATION_BATCH, build_model, load_data, make_run_data, make_runner
from rbprune.runs.folder import RunFolder
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import QUICK, SMALL, quiet, summary_of


def test_data_are_divided_as_the_settings_say() -> None:
    data = load_data(load_recipe("demo", SMALL))
    assert (len(data.train), data.val and len(data.val)) == (160, 100)
    streams = make_run_data(data, seed=3)
    assert streams.val is not None and streams.test is not None
    sizes = [len(labels) for _, labels in streams.test.epoch(0)]
    assert sum(sizes) == len(data.test) and max(sizes) <= EVALUATION_BATCH
    first, again, other = (list(make_run_data(data, seed).train(16).epoch(0)) for seed in (3, 3, 4))
    assert len(first) == 10
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for (a, _), (b, _) in zip(first, other, strict=True))


def test_the_network_depends_on_the_seed_alone() -> None:
    given = "model.input_shape=[1, 28, 28]"
    models = [build_model(load_recipe("demo", [given, f"seed={seed}"])) for seed in (1, 1, 2)]
    weights = [model.get_parameter("conv1.weight") for model, _ in models]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert models[0][1].shape == (2, 1, 28, 28)


def test_the_runner_knows_what_only_the_data_could_tell_and_writes_nothing(tmp_path: Path) -> None:
    runner = make_runner(load_recipe("demo", QUICK), RunFolder(tmp_path / "run"), quiet(), [])
    assert (runner.settings.model.classes, runner.settings.model.input_shape) == (10, [1, 28, 28])
    assert not (tmp_path / "run").exists()


def test_without_weights_and_training_there_is_nothing_to_prune(tmp_path: Path) -> None:
    config = load_recipe("demo", QUICK).model_copy(update={"pretrain": None})
    with pytest.raises(ConfigError, match=r"set model.weights=FILE or give a \[pretrain\] section"):
        make_runner(config, RunFolder(tmp_path), quiet(), [])


def test_a_pruned_network_is_built_from_its_plan_and_a_run_goes_on_from_it(whole: Path, tmp_path: Path) -> None:
    """Its plan then leads from the network as the zoo builds it, not from the one that this run began with."""
    cut = [f"model.weights={whole / 'model.safetensors'}", f"model.plan={whole / 'plan.json'}"]
    more = ["prune.method=uniform", "prune.macs_ratio=1.5", "finetune.epochs=1"]
    settings = load_recipe("demo", [*QUICK, *cut, *more])
    summary = start(settings, tmp_path / "run", console=quiet())
    assert summary["macs_before"] == summary_of(whole)["macs_after"]
    assert summary["error_before"] == summary_of(whole)["error_after"], "it is the same network"
    assert summary["val_error_before"] == summary_of(whole)["val_error_after"]
    pruned = rbprune.load(tmp_path / "run", rbprune.models.build("lenet5"))
    assert rbprune.trace(pruned, torch.zeros(1, 1, 28, 28)).macs() == summary["macs_after"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.plan=plan.json"], "model.plan = 'plan.json' .* model.weights must name its weights"),
        (["model.plan=no.json", "model.weights=a.safetensors"], "model.plan: there is no file '/.*no.json'"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(load_recipe("demo", [*settings, "model.input_shape=[1, 28, 28]"]))


def test_the_latency_is_measured_at_the_end_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)
    short = ("pretrain.epochs=0.2", "prune.epochs=0", "finetune.epochs=0", "prune.method=uniform", "prune.macs_ratio=2")
    summary = start(load_recipe("demo", [*QUICK, *short, "runtime.time=true"]), tmp_path / "timed", console=quiet())
    timed = summary["measured_latency"]
    assert (timed["batch"], timed["dense_ms"] > 0, timed["pruned_ms"] > 0) == (1, True, True)
    assert "Latency, batch 1" in (tmp_path / "timed" / "report.html").read_text()
    summary = start(load_recipe("demo", [*QUICK, *short]), tmp_path / "plain", console=quiet())
    assert "measured_latency" not in summary
    assert "Latency" not in (tmp_path / "plain" / "report.html").read_text()
