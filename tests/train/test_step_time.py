"""Timing training steps: nothing is left of it but the times."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.settings.sections import RuntimeSettings
from rbprune.train import step_time
from rbprune.train.engine import Engine
from rbprune.train.step_time import Mode, StepTimer, time_steps
from tests.networks import stripes, tiny_cnn

MODES: list[Mode] = [(None, False), (None, True), (torch.bfloat16, False), (torch.bfloat16, True)]
CPU = torch.device("cpu")


@pytest.fixture
def engine() -> Engine:
    return Engine(RuntimeSettings(accelerator="cpu", threads=1))


def test_weights_buffers_gradients_modes_and_generators_are_as_before(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_time, "CLEARLY", 1e9)
    monkeypatch.setattr(step_time, "CLEARLY_AT_FIRST", 1e9)
    model = nn.Sequential(nn.Dropout(0.5), *tiny_cnn()).eval()
    model[1].train()
    images, labels = stripes(8)
    F.cross_entropy(model(images), labels).backward()
    before = copy.deepcopy(model.state_dict())
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    drawn: list[tuple[float, float, float]] = []

    def batch() -> tuple[Tensor, Tensor]:
        drawn.append((torch.rand(()).item(), random.random(), np.random.rand()))
        return images, labels

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    times = time_steps(model, batch, F.cross_entropy, MODES, engine, macs=1)
    assert all(seconds is not None and seconds > 0 for seconds in times)
    assert len(drawn) == 1, "one batch for all"
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # type: ignore[index]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name for name, p in model.named_parameters() if p.grad is not None} == set(gradients)
    assert all(torch.equal(p.grad, gradients[name]) for name, p in model.named_parameters() if p.grad is not None)
    assert [m.training for m in model] == [False, True, *[False] * (len(model) - 2)]
    assert model[1].weight.stride() == tiny_cnn()[0].weight.stride(), "and so is the memory layout"


def test_each_mode_computes_in_its_precision_and_layout() -> None:
    seen: list[tuple[torch.dtype, bool, torch.dtype]] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            layouts = {t.is_contiguous(memory_format=torch.channels_last) for t in (x, self.conv.weight)}
            assert len(layouts) == 1
            seen.append((y.dtype, layouts.pop(), torch.float32))
            return y.mean((2, 3))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        assert outputs.dtype == torch.float32, "as Lightning Fabric hands them out"
        return F.cross_entropy(outputs, targets)

    timer = StepTimer(Spy(), torch.randn(2, 3, 5, 5), torch.tensor([0, 1]), loss, CPU)
    for mode in MODES:
        timer.step(mode)
    wanted = [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False), (torch.bfloat16, True)]
    assert [entry[:2] for entry in seen] == wanted
    assert timer.model.conv.weight.grad is None


class Played(StepTimer):
    """Steps that take invented times, one after another for each mode; None fails."""

    def __init__(self, seconds: dict[Mode, list[float | None]]) -> None:
        super().__init__(nn.Identity(), None, None, F.cross_entropy, CPU)
        self.seconds = {mode: list(values) for mode, values in seconds.items()}

    def step(self, mode: Mode) -> float:
        found = self.seconds[mode].pop(0)
        if found is None:
            raise RuntimeError("not in this mode")
        return found


def test_the_first_step_does_not_count_and_the_median_does() -> None:
    timer = Played({MODES[0]: [9.0, 1.0, 3.0, 2.0], MODES[1]: [9.0, 0.5, 0.7, 0.9]})
    assert timer.measure(MODES[:2]) == [2.0, 0.7]


def test_what_fails_or_is_clearly_slower_is_given_up_at_once() -> None:
    timer = Played(
        {
            MODES[0]: [1.0, 1.0, 1.0, 1.0],
            MODES[1]: [None],
            MODES[2]: [14.0],
            MODES[3]: [1.0, 1.6],
        }
    )
    assert timer.measure(MODES) == [1.0, None, None, None]
    assert not any(timer.seconds.values()), "no step too many"


def test_what_the_first_mode_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="not in this mode"):
        Played({MODES[0]: [None], MODES[1]: [1.0]}).measure(MODES[:2])


def test_slow_steps_end_the_measurement_after_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_time, "MOST_SECONDS", -1.0)
    timer = Played({MODES[0]: [40.0, 30.0], MODES[1]: [40.0, 20.0]})
    assert timer.measure(MODES[:2]) == [30.0, 20.0]


@pytest.mark.parametrize(("macs", "examples"), [(1.0, 32), (2 * step_time.CPU_MACS, 16), (1e15, 8)])
def test_large_batches_are_made_smaller_on_a_cpu(engine: Engine, macs: float, examples: int) -> None:
    seen: set[Any] = set()
    images, labels = stripes(32)

    def loss(outputs: Tensor, targets: dict[str, Tensor]) -> Tensor:
        seen.add((len(outputs), len(targets["labels"]), float(targets["scale"])))
        return F.cross_entropy(outputs, targets["labels"])

    batch = images, {"labels": labels, "scale": torch.tensor(2.0)}
    time_steps(tiny_cnn(), lambda: batch, loss, MODES[:1], engine, macs=macs)
    assert seen == {(examples, examples, 2.0)}
