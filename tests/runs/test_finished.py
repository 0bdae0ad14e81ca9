"""Opening a finished run, and what is said of one that is not finished, damaged, or of another network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import rbprune
from rbprune import models
from rbprune.errors import ModelError
from rbprune.runs.finished import load, open_run
from rbprune.runs.folder import RunFolder
from tests.runs.quick import summary_of


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> RunFolder:
    """A finished run that may be damaged."""
    shutil.copytree(whole, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_it_has_settings_plan_summary_and_both_networks(whole: Path) -> None:
    run = open_run(whole)
    assert run.model_name == run.settings.model.name == "lenet5"
    assert run.summary == summary_of(whole)
    channels = summary_of(whole)["channels"]
    assert {name: [site["channels"], len(site["kept"])] for name, site in run.plan.sites.items()} == channels
    for name, (before, after) in channels.items():
        assert run.dense.get_parameter(f"{name}.weight").shape[0] == before
        assert run.pruned.get_parameter(f"{name}.weight").shape[0] == after
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(run.pruned.eval()(x), rbprune.load(whole, models.build("lenet5")).eval()(x))


def test_plan_and_weights_are_enough_to_load(copied: RunFolder) -> None:
    for file in copied.path.iterdir():
        if file not in (copied.plan_file, copied.weights_file) and file.is_file():
            file.unlink()
    assert load(str(copied), models.build("lenet5")) is not None


def test_what_is_missing_is_named(copied: RunFolder) -> None:
    copied.weights_file.unlink()
    with pytest.raises(ModelError, match=r"has no model.safetensors: it is no finished run; 'rbprune resume .*run'"):
        load(copied.path, models.build("lenet5"))
    copied.plan_file.unlink()
    with pytest.raises(ModelError, match=r"has no plan.json: it is no finished run"):
        open_run(copied.path)


def test_weights_that_cannot_be_read_leave_the_model_whole(copied: RunFolder) -> None:
    copied.weights_file.write_bytes(copied.weights_file.read_bytes()[:100])
    model = models.build("lenet5")
    with pytest.raises(ModelError, match=r"model.safetensors cannot be read: .*; copy it anew, or repeat the run"):
        load(copied.path, model)
    assert model.conv1.out_channels == 20  # type: ignore[union-attr]


def test_weights_of_another_network_do_not_fit(copied: RunFolder) -> None:
    model = models.build("lenet5")
    model.fc2 = torch.nn.Linear(500, 7)
    with pytest.raises(ModelError, match="does not fit this LeNet5"):
        load(copied.path, model)
