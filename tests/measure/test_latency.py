"""Networks timed side by side."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from rbprune.errors import ConfigError
from rbprune.measure.latency import latency, storage_bytes
from rbprune.measure.machine import DEVICES, find_device
from rbprune.utils.state import state_tensors

SHAPE = (16, 24, 24)


@pytest.fixture
def _barely_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short warm-up, where what is looked at is not how long things take."""
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)


def net(width: int = 16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(16, width, 1, bias=False),
        nn.Conv2d(width, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Dropout(0.5),
    )


def measure(networks: dict[str, nn.Module], **options: Any) -> Any:
    """In CPU time of one thread, so that what else runs on this machine matters little."""
    given = {"batches": [2], "rounds": 20, "threads": 1, "device": "cpu", "clock": "cpu"} | options
    return latency(networks, SHAPE, **given)


def test_sixteen_times_the_work_takes_clearly_longer() -> None:
    result = measure({"dense": net(128), "pruned": net(32)})
    found = result.at("pruned", 2)
    assert found.ratio.low > 2
    assert found.ms.median < result.at("dense", 2).ms.low


def test_equal_networks_take_equally_long() -> None:
    """The quartiles of the ratio overlap 0.9 to 1.1.

    They do not only if 15 of 20 rounds are off by more than a tenth to the same side. Equal networks in alternating
    order are off to either side equally often; were every second round off by so much, the chance would be 8e-6.
    """
    ratio = measure({"one": net(64), "other": copy.deepcopy(net(64))}).at("other", 2).ratio
    assert ratio.low < 1.1
    assert ratio.high > 0.9


@pytest.mark.usefixtures("_barely_warm")
def test_results_cover_every_network_and_batch_with_ordered_quartiles() -> None:
    result = measure({"a": net(), "b": net(8), "c": net(4)}, batches=[1, 4], rounds=3, clock="wall")
    assert [(t.network, t.batch) for t in result.timings] == [(n, b) for b in (1, 4) for n in "abc"]
    for timing in result.timings:
        assert 0 < timing.ms.low <= timing.ms.median <= timing.ms.high
        assert 0 < timing.ratio.low <= timing.ratio.median <= timing.ratio.high
    assert result.at("a", 1).ratio.low == result.at("a", 1).ratio.high == 1, "the first network is what ratios refer to"
    assert (result.machine.device, result.machine.threads) == ("cpu", 1)
    assert result.as_dict()["machine"]["torch"] == torch.__version__


@pytest.mark.usefixtures("_barely_warm")
def test_one_round_is_its_own_median() -> None:
    timing = measure({"a": net()}, rounds=1).at("a", 2)
    assert timing.ms.low == timing.ms.median == timing.ms.high


@pytest.mark.usefixtures("_barely_warm")
@pytest.mark.parametrize("channels_last", [False, True])
def test_networks_are_given_back_as_they_were(channels_last: bool) -> None:
    model = net().train()
    model[2].eval()
    model[1].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model(torch.randn(2, *SHAPE)).sum().backward()
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: (t.data_ptr(), t.stride(), t.grad, t.clone()) for name, t in tensors.items()}
    modes = [part.training for part in model.modules()]
    threads = torch.get_num_threads()
    measure({"model": model, "itself": model}, rounds=1, channels_last=channels_last, threads=threads + 1)
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert [part.training for part in model.modules()] == modes
    assert torch.get_num_threads() == threads
    for name, (pointer, stride, gradient, value) in before.items():
        assert after[name] is tensors[name]
        assert (after[name].data_ptr(), after[name].stride()) == (pointer, stride)
        assert after[name].grad is gradient
        assert torch.equal(after[name], value)


@pytest.mark.usefixtures("_barely_warm")
def test_networks_run_in_evaluation_mode_in_the_layout_asked_for() -> None:
    seen = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            layouts = [t.is_contiguous(memory_format=torch.channels_last) for t in (x, self.conv.weight)]
            seen.append((*layouts, self.training, torch.is_inference_mode_enabled(), tuple(x.shape)))
            return self.conv(x)

    measure({"spy": Spy()}, rounds=1, batches=[3], channels_last=True)
    assert set(seen) == {(True, True, False, True, (3, *SHAPE))}


def test_a_network_that_fails_is_given_back_too() -> None:
    model = nn.Sequential(nn.Conv2d(16, 4, 3), nn.Linear(1, 1)).train()
    with pytest.raises(RuntimeError):
        measure({"broken": model}, channels_last=True)
    assert all(part.training for part in model.modules())
    assert model[0].weight.is_contiguous()


@pytest.mark.usefixtures("_barely_warm")
def test_storage_is_what_safetensors_holds() -> None:
    model = net()
    content = save(state_tensors(model))
    header = 8 + int.from_bytes(content[:8], "little")
    assert storage_bytes(model) == len(content) - header
    assert load(content).keys() == model.state_dict().keys()
    ratio = measure({"dense": model, "half": copy.deepcopy(model).bfloat16()}, rounds=1).storage_ratio["half"]
    assert 1.9 < ratio < 2, "all but the counter of batch normalisation is half as large"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "unknown device 'tpu'; known are auto, cpu, cuda, mps"),
        ({"batches": [1, 0]}, r"from 1 on, such as 1, 32; got \[1, 0\]"),
        ({"batches": []}, r"got \[\]"),
        ({"rounds": 0}, "rounds is 0; measure at least 1"),
        ({"threads": 0}, "threads is 0; use at least 1"),
        ({"clock": "sun"}, "this is 'sun' on cpu"),
    ],
)
def test_what_cannot_be_measured_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        measure({"net": net()}, **options)


def test_nothing_to_time_and_channels_last_without_channels_are_errors() -> None:
    with pytest.raises(ConfigError, match="no network to time"):
        latency({}, SHAPE)
    with pytest.raises(ConfigError, match=r"three dimensions, such as 3x224x224; got \[4\]"):
        latency({"linear": nn.Linear(4, 2)}, (4,), channels_last=True)


def test_a_device_that_is_not_here_is_named_with_those_that_are() -> None:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    for name in (name for name, here in there.items() if not here):
        with pytest.raises(ConfigError, match=f"device '{name}' is not available .*cpu"):
            find_device(name)
    assert find_device("auto").type in DEVICES
