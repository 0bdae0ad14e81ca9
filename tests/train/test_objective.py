"""Losses and mistakes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rbprune.errors import DataError
from rbprune.train.objective import data_loss, distillation, mistakes


def test_labels_out_of_range_are_named() -> None:
    with pytest.raises(DataError, match=r"batch 3 has label 12, but the model has 10 outputs \(labels 0\.\.9\)"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), torch.tensor([1, 12]), "batch 3")
    with pytest.raises(DataError, match="the loss fails on batch 3"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), torch.zeros(3, dtype=torch.long), "batch 3")


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
