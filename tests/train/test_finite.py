"""A loss that is no number stops the run with the batch it came from, and no step waits for the device to say so."""

from __future__ import annotations

import math
import traceback
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from rbprune import Price, Pruner
from rbprune.errors import NumericalError
from rbprune.settings.sections import PretrainSettings, PruneSettings, RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.finite import LossMeter
from rbprune.train.phase import Phase, PhaseRun
from rbprune.train.stream import LoaderStream
from tests.networks import stripes, tiny_cnn

CPU = torch.device("cpu")


class NumbersRead(TorchDispatchMode):
    """Counts what makes a processor wait for a device: reading a single number from a tensor.

    Adam's own counter of steps does not: on every device it is kept in the processor's memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.count += not any(frame.filename.endswith("torch/optim/adam.py") for frame in traceback.extract_stack())
        return func(*args, **(kwargs or {}))


def phase_run(stage: Any, model: Any) -> PhaseRun:
    images, labels = stripes(128)
    stream = LoaderStream([(images[i : i + 32], labels[i : i + 32]) for i in range(0, 128, 32)], 128)
    optim = PretrainSettings(epochs=1, lr=1e-2) if stage is None else PruneSettings(epochs=3, optimizer="sgd", lr=1e-2)
    phase = Phase(0, "pretrain" if stage is None else "prune", optim, None if stage is None else 0)
    run = PhaseRun(phase, Engine(RuntimeSettings()), model, stream, F.cross_entropy, seed=0, stage=stage)
    run.meter = LossMeter(CPU, every=16)  # as on an accelerator
    return run


def any_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets)


@pytest.mark.parametrize(
    ("rates", "loss_fn"),
    [("adam", None), ("fixed-point", None), ("fixed-point", F.cross_entropy), ("auto", any_loss), (None, None)],
)
def test_a_training_step_reads_no_number(rates: str | None, loss_fn: Any) -> None:
    model, stage, example = tiny_cnn(8), None, torch.zeros(2, 1, 8, 8)
    if rates is not None:
        price = Price(nats=20)
        stage = Pruner(model, example, dataset_size=128, loss_fn=loss_fn, price=price, rates=rates).stage(0)
    run = phase_run(stage, model)
    steps = run.run_epoch()
    next(steps)  # the first makes sure that the loss is one whose curvature is known
    with NumbersRead() as numbers:
        assert len(list(steps)) == 3
    assert numbers.count == 0


def test_adding_up_on_the_device_gives_the_same_means() -> None:
    losses = torch.rand(40)
    means = []
    for every in (1, 16):
        meter = LossMeter(CPU, every=every)
        for number, loss in enumerate(losses):
            meter.add(loss, 2 * loss, torch.zeros(1), f"batch {number}")
        means.append(meter.means())
    assert means[0] == means[1]
    assert means[0] == pytest.approx((float(losses.double().mean()), 2 * float(losses.double().mean())))


@pytest.mark.parametrize(("every", "noticed"), [(1, 5), (4, 7), (16, 15)])
def test_the_batch_is_named_even_when_it_is_read_later(every: int, noticed: int) -> None:
    meter = LossMeter(CPU, every=every)
    with pytest.raises(NumericalError, match="the loss is nan at batch 5; lower the learning rate"):
        for number in range(40):
            last = number
            value = math.nan if number == 5 else 1.0
            meter.add(torch.tensor(value), torch.tensor(0.0), torch.zeros(1), f"batch {number}")
    assert last == noticed


def test_data_that_is_no_number_is_blamed_for_it_later_too() -> None:
    meter = LossMeter(CPU, every=16)
    meter.add(torch.tensor(1.0), torch.tensor(0.0), torch.zeros(1), "batch 0")
    meter.add(torch.tensor(math.nan), torch.tensor(0.0), {"x": torch.tensor([math.inf])}, "batch 1")
    with pytest.raises(NumericalError, match="batch 1 contains NaN or infinity in its input"):
        meter.values()


def test_a_meter_goes_on_where_it_was() -> None:
    first, second = LossMeter(CPU), LossMeter(CPU)
    first.add(torch.tensor(3.0), torch.tensor(1.0), (), "batch 0")
    first.seconds = 2.0
    second.restore(first.values())
    assert (second.means(), second.steps, second.seconds) == ((3.0, 1.0), 1, 2.0)
    second.reset()
    assert (second.steps, second.seconds) == (0, 0.0)
