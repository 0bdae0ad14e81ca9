"""Numbers that are none, labels of no class and losses that are no loss end in an error that says so, never in a score:
for ``rbprune.prune``, for a loop of one's own, and (through the same runner) for recipes."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader

import rbprune
from rbprune import Price, Pruner
from rbprune.errors import DataError, NumericalError, RbpruneError
from rbprune.pruner import Loss
from tests.utils.test_loader_workers import Dying

Batches = Sequence[tuple[Tensor, Tensor]]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    )


def batches(*, pixel: float = 0.0, label: int = 0) -> Batches:
    """Four batches of eight; the third example of the second has a pixel and a label of its own."""
    x, y = torch.randn(32, 1, 8, 8), torch.arange(32) % 3
    x[10, 0, 3, 3], y[10] = pixel, label
    return [(x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8)]


def prune(model: nn.Module, train: Any, val: Any = None, loss_fn: Loss = F.cross_entropy) -> rbprune.api.Result:
    return rbprune.prune(
        model,
        train,
        example_inputs=torch.zeros(2, 1, 8, 8),
        val_loader=val,
        loss_fn=loss_fn,
        price=Price(nats=0.1),
        dataset_size=32,
        options={"prune": {"epochs": 1}, "finetune": {"epochs": 1}, "runtime": {"threads": 1}},
        console=Console(file=io.StringIO()),
    )


def own_loop(model: nn.Module, train: Batches) -> None:
    pruner = Pruner(model, torch.zeros(2, 1, 8, 8), dataset_size=32, price=Price(nats=0.1))
    for stage in pruner:
        optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3))
        for x, y in train:
            loss = F.cross_entropy(model(x), y) + stage.kl()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stage.finish()


@pytest.mark.parametrize("pixel", [math.nan, math.inf, -math.inf])
def test_no_score_is_told_of_data_that_is_no_number(pixel: float) -> None:
    told = (
        r"evaluation batch 1 contains NaN or infinity in its input \(first in example 2 of the batch\).*clean the data"
    )
    with pytest.raises(NumericalError, match=told):
        prune(network(), batches(), batches(pixel=pixel))
    with pytest.raises(NumericalError, match="training batch 1 contains NaN or infinity in its input"):
        prune(network(), batches(pixel=pixel))


@pytest.mark.parametrize(
    ("name", "value"), [("5.weight", math.nan), ("1.running_var", math.nan), ("1.running_mean", math.inf)]
)
def test_a_network_of_no_numbers_is_refused_by_the_name_of_its_tensor(name: str, value: float) -> None:
    for start in (lambda model: prune(model, batches(), batches()), lambda model: own_loop(model, batches())):
        model = network()
        model.state_dict()[name].view(-1)[0] = value
        with pytest.raises(NumericalError, match=rf"cannot be pruned: '{name}' holds NaN or infinity \(1 of its"):
            start(model)


def test_a_negative_variance_is_refused() -> None:
    model = network()
    model.state_dict()["1.running_var"][2] = -1
    with pytest.raises(NumericalError, match=r"'1.running_var' holds -1, and no variance is negative"):
        own_loop(model, batches())


def test_masks_may_be_infinite() -> None:
    model = network()
    model.register_buffer("mask", torch.full((3,), -math.inf))
    own_loop(model, batches())


@pytest.mark.parametrize("label", [3, -1])
def test_no_score_is_told_of_labels_of_no_class(label: int) -> None:
    with pytest.raises(DataError, match=rf"evaluation batch 1 has label {label}, but the model has 3 outputs"):
        prune(network(), batches(), batches(label=label))


def test_what_the_loss_ignores_does_not_count_as_a_mistake() -> None:
    model = network()
    ignored = prune(model, batches(), batches(label=-100)).summary["error_after"]
    assert ignored * 31 / 100 == pytest.approx(round(ignored * 31 / 100))


def test_a_loop_of_ones_own_that_broke_the_network_is_told_so() -> None:
    model = network()
    with pytest.raises(NumericalError, match=r"after 4 training passes in the stage of 0, '0.weight' holds NaN"):
        own_loop(model, batches(pixel=math.nan))
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("form", ["shape", "type", "labels"])
def test_a_batch_of_another_form_midway_is_named(part: str, form: str) -> None:
    other = list(batches())
    x, y = other[2]
    other[2] = {"shape": (x.repeat(1, 2, 1, 1), y), "type": (x.double(), y), "labels": (x, y[:5])}[form]
    train, val = (other, batches()) if part == "train" else (batches(), other)
    with pytest.raises(DataError, match=r"batch 2"):
        prune(network(), train, val)


def test_a_dead_worker_is_an_error_of_ours() -> None:
    with pytest.raises(DataError, match="a worker of the data loader died.*fewer workers"):
        prune(network(), DataLoader(Dying(), 8, num_workers=1))
    with pytest.raises(DataError, match="a worker of the data loader died.*fewer workers"):
        prune(network(), batches(), DataLoader(Dying(), 8, num_workers=1))


@pytest.mark.parametrize(
    "loss_fn",
    [lambda o, t: 1.0, lambda o, t: None, nn.CrossEntropyLoss(reduction="none")],
    ids=["float", "None", "vector"],
)
def test_a_loss_that_is_none_is_refused(loss_fn: Any) -> None:
    with pytest.raises(RbpruneError, match="loss_fn returned .* and a loss is one number as a tensor"):
        prune(network(), batches(), loss_fn=loss_fn)
