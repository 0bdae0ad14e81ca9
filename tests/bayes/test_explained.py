"""What a network explains, against figures that are known by other means."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rbprune.bayes.explained import explained_nats
from rbprune.bayes.likelihood import Bernoulli, Location, SecondDerivative, Softmax


def test_a_sure_network_explains_the_entropy_of_its_classes() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    scores = 60.0 * F.one_hot(labels, 3)
    shares = torch.tensor([0.6, 0.3, 0.1])
    assert explained_nats(Softmax(), scores) == pytest.approx(float(-(shares * shares.log()).sum()), abs=1e-6)
    maps = scores[:, :, None, None].expand(10, 3, 2, 2)
    assert explained_nats(Softmax(), maps) == pytest.approx(explained_nats(Softmax(), scores)), "positions count alike"


def test_a_network_that_says_the_same_of_everything_explains_nothing() -> None:
    constant = torch.tensor([2.0, -1.0, 0.5]).expand(7, 3)
    assert explained_nats(Softmax(), constant) == pytest.approx(0, abs=1e-9)
    assert explained_nats(Bernoulli(), constant) == pytest.approx(0, abs=1e-9)


def test_it_is_what_a_calibrated_network_gains_on_the_mean_prediction() -> None:
    """With labels drawn from the predictions, the mean gain in log-likelihood over the mean prediction."""
    generator = torch.Generator().manual_seed(0)
    scores = 1.5 * torch.randn(200_000, 4, generator=generator)
    p = scores.softmax(1)
    labels = torch.multinomial(p, 1, generator=generator)
    gains = p.gather(1, labels).log() - p.mean(0).log()[labels]
    found = explained_nats(Softmax(), scores)
    assert found is not None
    assert abs(found - float(gains.mean())) < 4 * float(gains.std()) / len(gains) ** 0.5


def test_two_scores_of_one_answer_are_the_answer_itself() -> None:
    score = torch.randn(50, 1)
    both = torch.cat([score, torch.zeros(50, 1)], 1)
    assert explained_nats(Bernoulli(), score) == pytest.approx(explained_nats(Softmax(), both))


def test_errors_have_the_capacity_of_a_gaussian_channel() -> None:
    torch.manual_seed(0)
    targets = 3 * torch.randn(4000, 2)
    outputs = targets + 0.5 * torch.randn(4000, 2)
    likelihood = Location(F.mse_loss)
    likelihood.measure(outputs, targets)
    likelihood.is_measured = True
    wanted = 2 / 2 * math.log1p((9 + 0.25) / 0.25)
    assert explained_nats(likelihood, outputs) == pytest.approx(wanted, rel=0.05)


def test_errors_that_nobody_has_measured_need_targets() -> None:
    targets = torch.randn(64, 3)
    assert explained_nats(Location(F.l1_loss), targets) is None
    assert (explained_nats(Location(F.l1_loss), 0.9 * targets, targets) or 0) > 0.5


def test_any_other_loss_is_compared_with_that_of_the_mean_output() -> None:
    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs["a"], targets) + outputs["b"].square().mean()

    targets = torch.arange(4.0)
    outputs = {"a": targets.clone(), "b": torch.zeros(4)}
    assert explained_nats(SecondDerivative(loss), outputs, targets) == pytest.approx(1.25), "the variance of 0..3"
    assert explained_nats(SecondDerivative(loss), outputs) is None
