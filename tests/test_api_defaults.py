"""What ``rbprune.prune`` decides where nothing is said: how rates are found, and the price."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rbprune
from tests.networks import stripes, tiny_cnn
from tests.test_api import loader, quiet


@pytest.mark.parametrize(
    ("method", "options", "loss", "rates"),
    [
        ("rbp", [], F.cross_entropy, "fixed-point"),
        ("ibp", [], nn.CrossEntropyLoss(label_smoothing=0.1), "fixed-point"),
        ("rbp", ["prune.rates=adam"], F.cross_entropy, "adam"),
        ("rbp", ["prune.noise=batch"], F.cross_entropy, "adam"),
        ("rbp", [], lambda outputs, targets: F.cross_entropy(outputs, targets), "auto"),
        ("sbp", [], F.cross_entropy, "adam"),
    ],
)
def test_the_rates_of_a_classifier_go_to_their_fixed_point(
    method: str, options: list[str], loss: Any, rates: str
) -> None:
    short = ["prune.epochs=1", "finetune.epochs=0", *options]
    result = rbprune.prune(
        tiny_cnn(),
        loader(64),
        example_inputs=stripes(2)[0],
        method=method,
        loss_fn=loss,
        options=short,
        console=quiet(),
    )
    assert result.config.prune.rates == rates
    assert result.config.prune.rate_lr == {"fixed-point": 0.05, "adam": 0.01, "auto": None}[rates]


@pytest.mark.parametrize(
    ("classes", "given", "options", "price"),
    [
        (10, None, [], {"nats_per_example": 2.0}),
        (100, None, [], {"nats_per_example": 2.0}),
        (2, None, [], {"nats_per_example": 0.6}),
        (2, rbprune.Price(nats=7), [], {"nats": 7.0}),
        (2, None, ["prune.price={nats=8}"], {"nats": 8.0}),
        (2, rbprune.Price(nats_per_example=1, nats=7), ["prune.price={nats=8}"], {"nats": 8.0}),
    ],
)
def test_the_price_is_given_or_in_proportion_to_the_evidence(
    classes: int, given: rbprune.Price | None, options: list[str], price: dict[str, float]
) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, classes))
    batches = [(torch.randn(8, 4), torch.randint(classes, (8,)))]
    short = ["prune.epochs=1", "finetune.epochs=0", *options]
    result = rbprune.prune(model, batches, example_inputs=batches[0][0], price=given, options=short, console=quiet())
    assert result.config.prune.price == rbprune.Price(**price)
