"""Losses and mistakes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.errors import DataError
from rbprune.train.objective import distillation, mistakes, training_outputs
from rbprune.utils.checked_calls import data_loss


def test_labels_out_of_range_are_named() -> None:
    with pytest.raises(DataError, match=r"batch 3 has label 12, but the model has 10 outputs \(labels 0\.\.9\)"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), torch.tensor([1, 12]), "batch 3")
    with pytest.raises(DataError, match="the loss fails on batch 3"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), torch.zeros(3, dtype=torch.long), "batch 3")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (
            torch.zeros(2, dtype=torch.int32),
            r"targets torch.int32 of shape \(2,\): labels .* \(targets.long",
        ),
        (torch.zeros(2), r"targets torch.float32 of shape \(2,\): labels of classes are whole numbers"),
        (torch.zeros(2, 1, dtype=torch.long), r"outputs are torch.float32 of shape \(2, 10\) and .* \(2, 1\)$"),
        ([0, 1], "the targets a list$"),
    ],
)
def test_targets_of_a_type_that_the_loss_cannot_take_are_named(targets: object, message: str) -> None:
    with pytest.raises(DataError, match=f"the loss fails on batch 3: .*{message}"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), targets, "batch 3")


def test_whole_numbers_for_a_loss_of_numbers_are_named() -> None:
    with pytest.raises(DataError, match=r"numbers may have to be floating \(targets.float\(\)\)$"):
        data_loss(F.binary_cross_entropy_with_logits, torch.zeros(2, 3), torch.ones(2, 3).long(), "batch 3")


def test_a_single_example_that_cannot_be_normalised_is_named() -> None:
    norm = nn.Sequential(nn.BatchNorm1d(3))
    with pytest.raises(DataError, match=r"batch 3 has a single example, and batch normalisation .* drop_last=True"):
        training_outputs(norm, torch.zeros(1, 3), "batch 3")
    with pytest.raises(DataError, match="the network fails on batch 3: expected 2D or 3D input"):
        training_outputs(norm, torch.zeros(1, 3, 3, 3), "batch 3")
    assert training_outputs(norm, torch.zeros(2, 3), "batch 3").shape == (2, 3)


def test_distillation_is_zero_for_equals_and_matches_its_definition() -> None:
    a, b = torch.randn(5, 4), torch.randn(5, 4)
    assert float(distillation(a, a)) == pytest.approx(0, abs=1e-6)
    p, q = (b / 4).softmax(1), (a / 4).softmax(1)
    wanted = 16 * (p * (p / q).log()).sum(1).mean()
    torch.testing.assert_close(distillation(a, b), wanted)


def test_mistakes_are_counted_only_in_classification() -> None:
    outputs = torch.tensor([[1.0, 0], [0, 1]])
    found = mistakes(outputs, torch.tensor([0, 0]))
    assert found is not None
    assert found.tolist() == [False, True]
    assert mistakes(outputs, torch.zeros(2, 2)) is None
    assert mistakes(outputs, torch.zeros(2)) is None


def test_a_class_among_the_five_best_is_no_top5_mistake() -> None:
    outputs = torch.tensor([[float(c) for c in range(100)]] * 4)
    targets = torch.tensor([99, 95, 94, 0])
    top1, top5 = mistakes(outputs, targets), mistakes(outputs, targets, best=5)
    assert top1 is not None and top1.tolist() == [False, True, True, True]
    assert top5 is not None and top5.tolist() == [False, False, True, True]
