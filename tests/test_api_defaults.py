"""What ``rbprune.prune`` decides where nothing is said: how rates are found, and the price."""

from __future__ import annotations

import math
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


def sure_of(classes: int) -> nn.Module:
    """A network that is sure of the class of every example: the place of the 1 in it."""
    model = nn.Sequential(nn.Linear(classes, classes), nn.ReLU(), nn.Linear(classes, classes))
    for layer, scale in ((model[0], 1.0), (model[2], 60.0)):
        nn.init.eye_(layer.weight).data.mul_(scale)  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return model


@pytest.mark.parametrize(
    ("classes", "given", "options", "price"),
    [
        (10, None, [], {"nats_per_example": 2.0}),
        (100, None, [], {"nats_per_example": 4.01}),
        (2, None, [], {"nats_per_example": 0.603}),
        (2, rbprune.Price(nats=7), [], {"nats": 7.0}),
        (2, None, ["prune.price={nats=8}"], {"nats": 8.0}),
        (2, rbprune.Price(nats_per_example=1, nats=7), ["prune.price={nats=8}"], {"nats": 8.0}),
    ],
)
def test_the_price_is_given_or_in_proportion_to_the_evidence(
    classes: int, given: rbprune.Price | None, options: list[str], price: dict[str, float]
) -> None:
    """0.87 log(classes) where the network is sure of classes that are equally frequent."""
    x = torch.eye(classes)
    short = ["prune.epochs=1", "finetune.epochs=0", *options]
    result = rbprune.prune(
        sure_of(classes),
        [(x, torch.arange(classes))],
        example_inputs=x,
        dataset_size=50_000,
        price=given,
        options=short,
        console=quiet(),
    )
    assert result.config.prune.price == rbprune.Price(**price)
    (told,) = [event for event in result.events if event["event"] == "dense"]
    assert told["price"] == price
    assert told["explained"] == pytest.approx(math.log(classes), rel=1e-4)


def test_the_price_of_a_network_that_explains_next_to_nothing_is_next_to_nothing() -> None:
    torch.manual_seed(0)
    short = ["prune.epochs=1", "finetune.epochs=0"]
    result = rbprune.prune(tiny_cnn(), loader(64), example_inputs=stripes(2)[0], options=short, console=quiet())
    price = result.config.prune.price
    assert price is not None and price.nats_per_example is not None and price.nats is not None
    assert price.nats_per_example < 0.1 and price.nats < 1, "20 nats would be more than all channels could earn"
