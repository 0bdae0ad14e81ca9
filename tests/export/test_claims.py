"""Holding a folder to what it says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rbprune import data, trace
from rbprune.errors import ConfigError
from rbprune.export.claims import evaluate_network
from rbprune.export.network import PrunedNetwork, open_network
from tests.runs.test_pair import run_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> PrunedNetwork:
    return open_network(run_folder(tmp_path_factory.mktemp("claims") / "run", "lenet5"))


def test_the_error_and_the_cost_are_those_of_an_independent_count(network: PrunedNetwork) -> None:
    found = evaluate_network(network)
    assert network.data is not None
    source = data.load(network.data.name, network.data.path, val=network.data.val).test
    images, labels = next(iter(source.batches(torch.arange(len(source)), len(source), seed=0, augment=False)))
    model = network.model.eval()
    with torch.no_grad():
        wrong = (model(images).argmax(1) != labels).double().mean()
    assert found.error == pytest.approx(100 * float(wrong), abs=1e-9)
    assert found.examples == len(source)
    conv1, conv2, fc1, fc2 = model.conv1, model.conv2, model.fc1, model.fc2
    weights = [conv1.weight.numel(), conv2.weight.numel(), fc1.weight.numel(), fc2.weight.numel()]
    assert found.params == sum(weights)
    assert found.macs == weights[0] * 24 * 24 + weights[1] * 8 * 8 + weights[2] + weights[3]
    assert found.params_ratio == pytest.approx(430_500 / sum(weights))


def test_what_is_not_as_the_folder_says_is_named(network: PrunedNetwork) -> None:
    true = evaluate_network(network)
    claims = {"error_after": true.error, "macs_after": true.macs, "params_after": true.params}
    assert evaluate_network(replace(network, summary=claims)).differences == []
    boast = {"error_after": true.error - 1.0, "macs_after": true.macs - 1, "params_after": true.params}
    error, macs = evaluate_network(replace(network, summary=boast)).differences
    assert f"and it is {true.error:.2f} %" in error
    assert f"and there are {true.macs:,}" in macs


def test_a_folder_that_names_no_data_is_refused(network: PrunedNetwork) -> None:
    with pytest.raises(ConfigError, match="does not say which data"):
        evaluate_network(replace(network, data=None))


ZOO = Path(__file__).parents[2] / "zoo"
ENTRIES = sorted(path.name for path in ZOO.iterdir() if path.is_dir())
DATA = os.environ.get("RBPRUNE_DATA")


@pytest.mark.parametrize("folder", ENTRIES)
def test_the_networks_of_the_zoo_are_small_whole_and_cost_what_they_say(folder: str) -> None:
    entry = open_network(ZOO / folder)
    assert sum(file.stat().st_size for file in (ZOO / folder).iterdir()) <= 2e6
    assert entry.input_shape is not None
    graph = trace(entry.model, torch.zeros(2, *entry.input_shape))
    assert (graph.macs(), graph.params()) == (entry.summary["macs_after"], entry.summary["params_after"])
    assert f"{entry.summary['error_after']:.2f} %" in (ZOO / folder / "README.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="RBPRUNE_DATA names no folder with MNIST and CIFAR10")
@pytest.mark.parametrize("folder", ENTRIES)
def test_the_networks_of_the_zoo_have_the_errors_that_they_claim(folder: str) -> None:
    found = evaluate_network(open_network(ZOO / folder, overrides=[f"data.path={DATA}"]))
    assert found.claimed.keys() == {"error", "macs", "params"}
    assert found.differences == []
