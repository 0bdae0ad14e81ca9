"""The loss on batches that are always the same."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.bayes.likelihood import Location, Softmax
from rbprune.methods.loss_check import LossCheck
from tests.networks import stripes, tiny_cnn


def test_it_is_the_mean_loss_of_each_batch_in_evaluation() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(48)
    batches = [(images[:32], labels[:32]), (images[32:], labels[32:])]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = LossCheck(batches, F.cross_entropy, Softmax()).losses(model)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        wanted = [float(F.cross_entropy(model.eval()(x), y)) for x, y in batches]
    assert found.tolist() == pytest.approx(wanted)


def test_batch_statistics_are_those_of_training_and_leave_no_trace() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = LossCheck([(images, labels)], F.cross_entropy, Softmax()).losses(model, batch_statistics=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.momentum == 0.1 for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    with torch.no_grad():
        wanted = float(F.cross_entropy(model.train()(images), labels))
    assert found.tolist() == pytest.approx([wanted])


def test_errors_are_measured_in_nats() -> None:
    model = nn.Linear(2, 3)
    x, y = torch.randn(40, 2), torch.randn(40, 3)
    likelihood = Location(F.mse_loss)
    likelihood.measure(model(x), y)
    likelihood.is_measured = True
    found = LossCheck([(x, y)], F.mse_loss, likelihood).losses(model)
    assert found.tolist() == pytest.approx([3 / 2]), "half a nat for each of three outputs, whatever the scale"


def test_a_look_tells_the_loss_and_what_is_explained() -> None:
    model = nn.Linear(3, 3, bias=False)
    nn.init.eye_(model.weight).data.mul_(60)
    x = torch.eye(3).repeat(4, 1)
    loss, explained = LossCheck([(x, x.argmax(1))], F.cross_entropy, Softmax()).look(model)
    assert (loss, explained) == pytest.approx((0, math.log(3)), abs=1e-6)


def test_what_is_explained_is_that_of_all_batches_together() -> None:
    """A batch of two examples cannot tell ten classes apart; five batches of two can."""
    model = nn.Linear(10, 10, bias=False)
    nn.init.eye_(model.weight).data.mul_(60)
    x = torch.eye(10)
    batches = [(x[i : i + 2], torch.arange(i, i + 2)) for i in range(0, 10, 2)]
    _, explained = LossCheck(batches, F.cross_entropy, Softmax()).look(model)
    assert explained == pytest.approx(math.log(10))
