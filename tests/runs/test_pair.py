"""Dense and pruned networks, brought together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rbprune
from rbprune import models
from rbprune.errors import ConfigError, ModelError
from rbprune.runs.folder import RunFolder
from rbprune.runs.pair import kept_pair, run_pair
from rbprune.settings.recipe import load_recipe

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")


def run_folder(folder: Path, name: str, *settings: str) -> Path:
    """A run folder of LeNet-5 that lost 15 of its first 20 channels, under a name of the model."""
    model = models.build("lenet5")
    graph = rbprune.trace(model, torch.zeros(2, 1, 28, 28))
    plan = graph.remove({"conv1": range(5, 20)})
    RunFolder(folder).write_network(model, plan)
    RunFolder(folder).begin(load_recipe("demo", [f"model.name={name}", *settings]))
    return folder


def test_a_network_is_cut_to_widths_and_the_dense_one_stays() -> None:
    pair = kept_pair("lenet5", "5-10")
    assert (pair.dense.conv2.out_channels, pair.pruned.conv2.out_channels) == (50, 10)  # type: ignore[union-attr]
    assert pair.shape == (1, 28, 28)
    dense = 20 * 25 * 24**2 + 50 * 20 * 25 * 64 + 800 * 500 + 5000
    assert pair.macs_ratio == pytest.approx(dense / (5 * 25 * 24**2 + 10 * 5 * 25 * 64 + 160 * 500 + 5000))


def test_a_run_gives_its_dense_and_its_pruned_network(tmp_path: Path) -> None:
    pair = run_pair(run_folder(tmp_path, "lenet5"))
    assert (pair.dense.conv1.out_channels, pair.pruned.conv1.out_channels) == (20, 5)  # type: ignore[union-attr]
    assert pair.name == "lenet5"
    assert pair.macs_ratio == pytest.approx(kept_pair("lenet5", "5").macs_ratio)


def test_a_run_from_python_needs_to_be_told_its_model(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "MyNet")
    with pytest.raises(ModelError, match="unknown model 'MyNet'.*give the MODEL of the run"):
        run_pair(folder)
    assert run_pair(folder, "lenet5").macs_ratio > 1


def test_the_shape_of_an_example_is_the_runs_own_unless_given(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "lenet5", "model.input_shape=[1,29,30]")
    assert run_pair(folder).shape == (1, 29, 30)
    assert run_pair(folder, shape=(1, 28, 28)).shape == (1, 28, 28)


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no run folder \(it has no config.toml\)"):
        run_pair(tmp_path)
    RunFolder(tmp_path).begin(load_recipe("demo"))
    with pytest.raises(ModelError, match=r"has no plan.json: it is no finished run"):
        run_pair(tmp_path)


def test_a_run_knows_its_number_of_classes(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "lenet5", "model.classes=10")
    factory = tmp_path / "mine.py"
    factory.write_text(
        "from rbprune import models\ndef net(classes=3):\n    return models.build('lenet5', classes=classes)\n"
    )
    assert run_pair(folder, f"{factory}:net", (1, 28, 28)).pruned.fc2.out_features == 10  # type: ignore[union-attr]
