"""Opening a finished run, and what is said of one that is not finished, damaged, or of another network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import rbprune
from rbprune import models
from rbprune.errors import DamagedError, ModelError, NumericalError
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
    """That nobody can tell whether they are damaged is said."""
    for file in copied.path.iterdir():
        if file not in (copied.plan_file, copied.weights_file) and file.is_file():
            file.unlink()
    with pytest.warns(UserWarning, match="run has no list of checksums: whether it is damaged cannot be told"):
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
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(
        ModelError, match=r"does not fit this LeNet5: 'fc2.bias' has shape \(7,\) here and \(10,\) there"
    ):
        load(copied.path, model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.conv1.out_channels == 20, "as it was"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["model.safetensors", "plan.json", "config.toml", "summary.json", "SHA256SUMS"])
def test_one_bit_of_any_file_is_noticed(copied: RunFolder, name: str) -> None:
    """Also where the file still looks like one: another weight, another setting."""
    file = copied.path / name
    content = bytearray(file.read_bytes())
    for place in (len(content) // 3, len(content) - 2):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        model = models.build("lenet5")
        with pytest.raises(DamagedError, match=rf"{name} cannot be read: it is damaged.*copy it anew, or repeat"):
            open_run(copied.path)
        if name in ("model.safetensors", "plan.json", "SHA256SUMS"):
            with pytest.raises(ModelError, match=name):
                load(copied.path, model)
        assert model.conv1.out_channels == 20  # type: ignore[union-attr]


def test_weights_that_are_no_numbers_are_refused_and_the_model_stays_as_it_was(copied: RunFolder) -> None:
    weights = load_file(copied.weights_file)
    weights["fc2.weight"][0, 0] = torch.nan
    save_file(weights, copied.weights_file)
    (copied.path / "SHA256SUMS").unlink()
    model = models.build("lenet5")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    said = r"model.safetensors holds no network .*'fc2.weight' holds NaN or infinity \(1 of its \d+ values\); repeat"
    with pytest.warns(UserWarning, match="no list of checksums"), pytest.raises(NumericalError, match=said):
        load(copied.path, model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
