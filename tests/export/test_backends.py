"""Networks on several backends."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from rbprune.errors import ConfigError
from rbprune.export.backends import backend_latency
from rbprune.measure.latency import storage_bytes


@pytest.fixture(autouse=True)
def _barely_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short warm-up: how long things take is not looked at here."""
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)


def network(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, 4, 3)).train()


def test_every_backend_is_timed_with_its_file_and_its_memory() -> None:
    networks = {"dense": network(64), "pruned": network(8)}
    before = {name: [tensor.clone() for tensor in module.state_dict().values()] for name, module in networks.items()}
    result = backend_latency(
        networks,
        (3, 128, 128),
        backends=["eager", "onnxruntime", "openvino"],
        int8=True,
        batches=[1, 4],
        device="cpu",
        rounds=1,
        threads=1,
    )
    labels = [("eager", False), ("onnxruntime", False), ("onnxruntime", True), ("openvino", False), ("openvino", True)]
    wanted = [(*label, name, batch) for batch in (1, 4) for label in labels for name in networks]
    assert [(t.backend, t.int8, t.network, t.batch) for t in result.timings] == wanted
    found = {(t.backend, t.int8, t.network, t.batch): t for t in result.timings}
    assert all(t.ms.median > 0 for t in result.timings)
    assert all(t.ratio.median == 1 for t in result.timings if t.network == "dense")
    assert found["eager", False, "dense", 1].file_bytes == storage_bytes(networks["dense"])
    assert found["onnxruntime", True, "dense", 1].file_bytes < found["onnxruntime", False, "dense", 1].file_bytes
    assert all(t.peak_bytes is not None and t.peak_bytes > t.file_bytes for t in result.timings if t.backend == "eager")
    for name, module in networks.items():
        assert module.training
        assert all(torch.equal(*pair) for pair in zip(before[name], module.state_dict().values(), strict=True))


PEAK = """
from torch import nn
from rbprune.export import backends
network = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 4, 3))
print(backends.backend_latency({"dense": network}, (3, 128, 128), batches=[4], device="cpu", rounds=1, threads=1)
      .timings[0].peak_bytes)
"""


def test_the_peak_is_a_few_maps_of_the_widest_layer() -> None:
    """In a process of its own: in a heap that has been used for hours, what is freed is not always taken again."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    maps = 4 * 64 * 128 * 128 * 4
    assert maps <= int(done.stdout) < 4 * maps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backends": ["onnx"]}, "unknown backend 'onnx'.*known are eager, compile, onnxruntime, openvino"),
        ({"backends": ["eager", "compile"], "int8": True}, "int8 is for the backends onnxruntime and openvino"),
        ({"backends": ["openvino"], "channels_last": True}, "openvino is timed on the CPU in its own memory layout"),
        ({"backends": ["eager"], "clock": "sun"}, "clock is wall"),
    ],
)
def test_what_cannot_be_timed_is_refused(options, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=message):
        backend_latency({"dense": network(2)}, (3, 8, 8), device="cpu", **options)
