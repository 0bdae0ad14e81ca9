"""The smallest network within an error as a run folder: what it holds, what a kill costs, what is refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import rbprune
from rbprune.errors import ConfigError
from rbprune.runs.build import load_data, make_run_data
from rbprune.runs.channel_verdicts import judged_channels
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import training_only
from rbprune.runs.start import start
from rbprune.runs.within_error import go_on, launch
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import SMALL, digest, events, overrides, quiet, run_and_kill, summary_of
from tests.runs.test_start import FILES

SEARCH = (
    *SMALL,
    "pretrain.epochs=10",
    "pretrain.lr=0.003",
    "prune.method=uniform",
    "finetune.epochs=8",
    "prune.max_error_rise=8",
    "runtime.checkpoint_seconds=0.2",
    "runtime.precision=32-true",
    "runtime.channels_last=false",
)
"""A search whose steps take a second each."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The setting that names a trained dense network."""
    folder = tmp_path_factory.mktemp("within") / "dense"
    start(training_only(load_recipe("demo", SEARCH)), folder, console=quiet())
    return f"model.weights={RunFolder(folder).weights_file}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, weights: str) -> Path:
    """A search that was never interrupted; nobody may change it."""
    folder = tmp_path_factory.mktemp("within") / "whole"
    launch(load_recipe("demo", [*SEARCH, weights]), folder, console=quiet(), command=["rbprune", "prune"])
    return folder


def plain(summary: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the clock."""
    return {key: value for key, value in summary.items() if key != "seconds"}


def test_it_is_a_run_folder_whose_validation_error_is_within_the_limit(found: Path) -> None:
    assert {path.name for path in found.iterdir()} == FILES - {"tb"} | {"steps"}
    summary = summary_of(found)
    assert summary["macs_ratio"] > 1.4
    assert summary["val_error_after"] <= summary["val_error_before"] + 8
    assert summary["verdict"]["level"] == "good" and "8 points were allowed" in summary["verdict"]["text"]
    model = rbprune.load(found, rbprune.models.build("lenet5"))
    assert rbprune.trace(model, torch.zeros(1, 1, 28, 28)).macs() == summary["macs_after"]
    widths = [model.conv1.out_channels, model.conv2.out_channels, model.fc1.out_features]
    assert widths == [after for _, after in summary["channels"].values()]
    assert [before for before, _ in summary["channels"].values()] == [20, 50, 500]
    settings = RunFolder(found).read_settings()
    assert settings.prune.max_error_rise == 8 and settings.model.input_shape == [1, 28, 28]


def test_the_validation_error_is_that_of_the_network_that_was_written(found: Path) -> None:
    """Measured anew, on the examples that the recipe holds out."""
    val = make_run_data(load_data(load_recipe("demo", SEARCH)), 0).val
    assert val is not None
    model = rbprune.load(found, rbprune.models.build("lenet5")).eval()
    with torch.no_grad():
        wrong = torch.cat([model(x).argmax(1) != y for x, y in val.epoch(0)])
    assert summary_of(found)["val_error_after"] == pytest.approx(100 * float(wrong.double().mean()))
    after = RunFolder(found).read_mistakes()["after"]
    assert (after["examples"], after["wrong"]) == (100, wrong.nonzero().flatten().tolist())


def test_every_step_starts_from_the_last_network_within_the_limit(found: Path) -> None:
    search = summary_of(found)["search"]
    good, largest = "dense", 1.0
    for attempt in search["attempts"]:
        assert attempt["start"] == good
        if attempt["within"]:
            assert attempt["val_error"] <= search["limit"] and attempt["ratios"]["macs"] > largest
            good, largest = attempt["path"], attempt["ratios"]["macs"]
    assert any(not attempt["within"] for attempt in search["attempts"]), "it went on until a step was too large"
    assert search["result"] in (good, "recovery")
    assert summary_of(found)["macs_ratio"] == pytest.approx(largest)
    assert search["standard_error"] > 0 and search["paired"]


def test_all_steps_are_in_the_cost_in_epochs_of_the_dense_network(found: Path) -> None:
    summary, steps = summary_of(found), RunFolder(found).steps
    dense = summary["macs_before"]
    spent = 0.0
    for folder in steps.iterdir():
        own = summary_of(folder)
        spent += sum(own["dense_epochs"].values()) * own["macs_before"] / dense
    assert summary["dense_epochs"]["prune"] + summary["dense_epochs"]["finetune"] == pytest.approx(spent)
    assert summary["dense_epochs"]["pretrain"] == 0, "the dense network was there"


def test_its_log_is_that_of_one_run(found: Path) -> None:
    log = events(found)
    assert [log[0]["event"], log[-1]["event"]] == ["start", "done"]
    stages = [event for event in log if event["event"] == "stage"]
    assert [event["stage"] for event in stages] == list(range(len(stages)))
    ratios = [event["macs_ratio"] for event in stages]
    assert ratios == sorted(ratios) and ratios[-1] == pytest.approx(summary_of(found)["macs_ratio"])
    spent = [event["dense_epochs"] for event in log if event["event"] == "epoch"]
    assert spent == sorted(spent)
    tuned = [event["epoch"] for event in log if event["event"] == "epoch" and event["phase"] == "finetune"]
    assert tuned == sorted(set(tuned)), "epochs are counted on"
    report = (found / "report.html").read_text()
    assert "8 points were allowed" in report and "Still running" not in report
    plan = json.loads((found / "plan.json").read_text())["sites"]
    for site in ("conv1", "conv2", "fc1"):
        judged = judged_channels(RunFolder(found), site).channels
        assert sorted(each.channel for each in judged if each.verdict != "goes") == plan[site]["kept"]


@pytest.mark.parametrize(("step", "moment"), [pytest.param("01", '"stage"', marks=pytest.mark.slow), ("02", '"epoch"')])
def test_killed_it_goes_on_and_ends_as_if_nothing_had_happened(
    step: str, moment: str, found: Path, weights: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["prune", "demo", "--out", str(out), *overrides((*SEARCH, weights))]
    ended = run_and_kill(out, f"steps/{step}", moment, words)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert RunFolder(out).is_run and not RunFolder(out).is_finished
    summary = go_on(out, console=quiet())
    assert digest(out) == digest(found)
    assert json.loads(json.dumps(plain(summary))) == plain(summary_of(out)) == plain(summary_of(found))
    assert go_on(out, console=quiet()) == summary_of(out), "a finished search only tells its summary"


def test_no_rise_and_a_hopeless_step_leave_the_dense_network(tmp_path: Path) -> None:
    """With a learning rate that spoils whatever it touches, every step is above the limit."""
    spoilt = ("finetune.lr=1.0", "prune.max_error_rise=0", "prune.method=random", "pretrain.epochs=6")
    summary = launch(load_recipe("demo", [*SEARCH, *spoilt]), tmp_path / "out", console=quiet())
    assert summary["macs_ratio"] == 1 and summary["val_error_after"] == summary["val_error_before"]
    assert summary["verdict"]["level"] == "bad" and "Nothing was removed" in summary["verdict"]["text"]
    assert summary["dense_epochs"]["pretrain"] == pytest.approx(6), "it was trained on the way"
    dense = RunFolder(tmp_path / "out").steps / "dense"
    assert digest(tmp_path / "out") == digest(dense)
    rbprune.load(tmp_path / "out", rbprune.models.build("lenet5"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.val=0"], "prune.max_error_rise compares validation errors, and there are no validation data"),
        (["budget=3"], "budget = 3 is what one run may take"),
        (["prune.macs_ratio=2"], r"max_error_rise = 8 goes as far as .* macs_ratio = 2 says how far: give one"),
        (["prune.params_ratio=2"], "params_ratio = 2 says how far"),
        (["prune.max_error_rise=-1"], "prune.max_error_rise = -1"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    settings: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        launch(load_recipe("demo", [*SEARCH, *settings]), tmp_path / "out", console=quiet())
    assert not (tmp_path / "out").exists()


def test_where_a_single_run_is_made_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="prune.max_error_rise = 8 is a search of many runs"):
        start(load_recipe("demo", SEARCH), tmp_path / "out", console=quiet())
