"""``Result.export``: from ``rbprune.prune`` to a file, and latency on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune.api import Result
from rbprune.errors import ConfigError
from rbprune.measure.runtimes import open_onnx
from tests.networks import learn_stripes, stripes, tiny_cnn
from tests.runs.quick import quiet


@pytest.fixture(scope="module")
def result() -> Result:
    """A small network at half of its MACs."""
    torch.manual_seed(0)
    model = tiny_cnn()
    learn_stripes(model)
    loader = DataLoader(TensorDataset(*stripes(64)), batch_size=32)
    return rbprune.prune(
        model,
        loader,
        example_inputs=stripes(2)[0],
        val_loader=loader,
        method="uniform",
        macs_ratio=2,
        options={"finetune": {"epochs": 1}, "runtime": {"time": True}},
        console=quiet(),
    )


def test_a_result_is_exported_and_its_card_knows_the_run(result: Result, tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(*stripes(64)), batch_size=32)
    found = result.export(tmp_path / "hub", int8=True, calibration=loader, validation=loader)
    assert (found.file.name, found.calibrated_on, found.batch) == ("model_int8.onnx", 64, "dynamic")
    assert found.errors is not None
    assert found.errors["before"] == result.summary["error_after"]
    x = stripes(5, seed=7)[0]
    wanted = result.model.eval()(x).detach()
    assert float((open_onnx(found.file)([x])[0] - wanted).abs().max() / wanted.abs().max()) < 0.1
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "by the method `uniform`" in card.replace("\n", " ")
    assert "| latency, batch 1 | " in card
    assert torch.equal(rbprune.load(tmp_path / "hub", tiny_cnn()).eval()(x), wanted)


def test_the_latency_was_measured_at_the_end(result: Result) -> None:
    timed = result.summary["measured_latency"]
    assert timed["batch"] == 1
    assert timed["dense_ms"] > 0
    assert result.events[-1]["summary"]["measured_latency"] == timed


def test_int8_needs_a_loader_of_training_data(result: Result, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no training data was given; .*calibration=LOADER in Python"):
        result.export(tmp_path / "hub", int8=True)
