"""Errors of a model on a stream."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.data import TensorSource
from rbprune.errors import DataError, NumericalError
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import Mistakes, evaluate
from rbprune.train.stream import LoaderStream, SourceStream


@pytest.mark.parametrize(("classes", "expected"), [(100, 50.0), (99, None)])
def test_top5_error_is_reported_from_a_hundred_classes_on(classes: int, expected: float | None) -> None:
    stream = SourceStream(_ranked(classes, targets=[classes - 1, classes - 5, classes - 6, 0]), 3, train=False)
    score = evaluate(Engine(RuntimeSettings()), nn.Flatten(), stream, F.cross_entropy)
    assert score.value == 75.0
    assert score.top5 == expected


def _ranked(classes: int, targets: list[int]) -> TensorSource:
    """Images whose pixels, taken as outputs, rank the classes by their number."""
    images = torch.arange(classes, dtype=torch.uint8).view(1, 1, 1, classes).expand(len(targets), -1, -1, -1)
    return TensorSource(images.contiguous(), torch.tensor(targets), mean=[0.5], std=[0.5])


def test_the_mean_is_over_examples_and_not_over_batches() -> None:
    batches = [(torch.tensor([[0.0]] * 3), torch.zeros(3, 1)), (torch.tensor([[2.0]]), torch.zeros(1, 1))]
    score = evaluate(Engine(RuntimeSettings()), nn.Identity(), LoaderStream(batches), F.mse_loss)
    assert (score.value, score.metric, score.top5) == (1.0, "loss", None)


def test_the_mean_is_over_examples_where_targets_are_dictionaries_too() -> None:
    batches = [(torch.zeros(3, 1), {"y": torch.ones(3, 1)}), (torch.zeros(1, 1), {"y": torch.full((1, 1), 3.0)})]

    def loss(outputs: torch.Tensor, targets: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.mse_loss(outputs, targets["y"])

    score = evaluate(Engine(RuntimeSettings()), nn.Identity(), LoaderStream(batches), loss)
    assert score.value == pytest.approx((3 * 1.0 + 9.0) / 4)


def test_models_are_evaluated_in_evaluation_mode_and_get_theirs_back() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9))
    batches = [(torch.eye(4), torch.arange(4))] * 5
    score = evaluate(Engine(RuntimeSettings()), model, LoaderStream(batches), F.cross_entropy)
    assert (score.value, score.metric, model.training) == (0.0, "error", True)


def test_nothing_to_evaluate_on_is_an_error() -> None:
    batches = [(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))]
    with pytest.raises(DataError, match="no example could be read for evaluation: all were left out as corrupt"):
        evaluate(Engine(RuntimeSettings()), nn.Identity(), LoaderStream(batches, 4), F.cross_entropy)


def test_a_loss_that_is_no_number_is_told_with_its_batch() -> None:
    batches = [(torch.ones(1, 1), torch.zeros(1, 1)), (torch.full((1, 1), 1e30), torch.zeros(1, 1))]
    with pytest.raises(NumericalError, match="the loss is inf at evaluation batch 1"):
        evaluate(Engine(RuntimeSettings()), nn.Identity(), LoaderStream(batches), F.mse_loss)


def test_mistakes_are_named_by_their_place_and_the_order_has_its_checksum() -> None:
    outputs, targets = torch.eye(4)[[0, 1, 1, 3, 2]], torch.tensor([0, 1, 2, 3, 0])

    def mistakes(order: list[int], size: int) -> Mistakes:
        batches = [(outputs[order][i : i + size], targets[order][i : i + size]) for i in range(0, 5, size)]
        found = evaluate(Engine(RuntimeSettings()), nn.Identity(), LoaderStream(batches), F.cross_entropy).mistakes
        assert found is not None
        return found

    plain = mistakes([0, 1, 2, 3, 4], 5)
    assert (plain.examples, plain.wrong) == (5, (2, 4))
    assert mistakes([0, 1, 2, 3, 4], 2) == plain, "whatever the batches"
    other = mistakes([4, 1, 2, 3, 0], 2)
    assert other.wrong == (0, 2) and mistakes([3, 1, 2, 0, 4], 5).order != plain.order
