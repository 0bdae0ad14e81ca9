"""A network and a loss of the user's: what they cannot take, and what a loss may not return, is said with the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import ConfigError, DataError
from rbprune.utils.checked_calls import data_loss, outputs_of

OUTPUTS, LABELS = torch.zeros(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])


def test_a_batch_that_the_network_cannot_take_is_named_with_its_shape() -> None:
    told = r"the network fails on batch 7: .*; its input is torch.float32 of shape \(4, 5\); give every batch the form"
    with pytest.raises(DataError, match=told):
        outputs_of(nn.Linear(3, 2), torch.zeros(4, 5), "batch 7")
    assert outputs_of(nn.Linear(3, 2), torch.zeros(4, 3), "batch 7").shape == (4, 2)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda o, t: F.cross_entropy(o, t).item(), r"returned a float \(1\.09.* on batch 7.*without .item\(\)"),
        (lambda o, t: None, r"returned a NoneType \(None\) on batch 7, .*; return the loss"),
        (
            lambda o, t: F.cross_entropy(o, t, reduction="none"),
            r"returned 4 numbers \(shape \(4,\)\).*reduction='mean'",
        ),
        (lambda o, t: (F.cross_entropy(o, t), 3), r"returned a tuple .*return the first of them alone"),
        (lambda o, t: torch.tensor(3), r"returned a number of type torch.int64.*return a floating number"),
        (lambda o, t: F.cross_entropy(o, t).detach(), r"returned a tensor without a gradient.*without .detach\(\)"),
        (lambda o, t: torch.empty(0), r"returned 0 numbers"),
    ],
)
def test_a_loss_is_one_number_with_a_gradient(returned: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        data_loss(returned, OUTPUTS, LABELS, "batch 7")


def test_one_number_in_a_row_is_one_number() -> None:
    def in_a_row(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets).reshape(1)

    assert data_loss(in_a_row, OUTPUTS, LABELS, "batch 7").shape == ()
    with torch.no_grad():  # where no gradient can be asked for
        assert data_loss(in_a_row, OUTPUTS, LABELS, "batch 7").shape == ()


def test_a_label_of_another_class_is_named() -> None:
    with pytest.raises(DataError, match=r"batch 7 has label 3, but the model has 3 outputs \(labels 0..2\)"):
        data_loss(F.cross_entropy, OUTPUTS, LABELS + 1, "batch 7")
