"""Errors of a model on a stream."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.data import TensorSource
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from rbprune.train.stream import SourceStream


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
