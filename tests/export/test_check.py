"""The check of a file against its network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune.errors import ExportError
from rbprune.export.check import check_file, difference, errors, in_batches, runs_of
from rbprune.utils.inputs import Arguments


def test_a_difference_is_relative_to_the_scale_of_its_own_output() -> None:
    small, large = torch.tensor([1e-3, -2e-3]), torch.tensor([5.0, -1000.0])
    assert difference([small + 1e-6, large], [small, large], "it") == pytest.approx(1e-6 / 2e-3, rel=1e-3)
    assert difference([small, large + 0.1], [small, large], "it") == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("bad", [torch.tensor([torch.nan, 0.0]), torch.tensor([torch.inf, 0.0])])
def test_what_is_not_finite_never_passes(bad: Tensor) -> None:
    with pytest.raises(ExportError, match="not finite; it was not written"):
        difference([bad], [torch.zeros(2)], "it")


def test_other_shapes_are_named() -> None:
    with pytest.raises(ExportError, match=r"shapes \[\(2,\)\], the network \[\(3,\)\]"):
        difference([torch.zeros(2)], [torch.zeros(3)], "it")


def test_a_file_that_is_a_little_wrong_is_refused_by_how_much() -> None:
    model, x = nn.Linear(3, 2), torch.randn(8, 3)
    with pytest.raises(ExportError, match=r"the onnx file differs from the network by 0\.001 of .* 0\.0001 is allowed"):
        check_file(lambda given: [1.001 * model(given.args[0])], model, x, "dynamic", "the onnx file")
    assert check_file(lambda given: [1.00005 * model(given.args[0])], model, x, "dynamic", "it") < 1e-4


def test_a_file_for_any_batch_size_is_tried_with_several() -> None:
    model, x, seen = nn.Linear(3, 2), torch.randn(8, 3), []

    def run(given: Arguments) -> list[Tensor]:
        seen.append(len(given.args[0]))
        return [model(given.args[0])]

    check_file(run, model, x, "dynamic", "it")
    assert seen == [1, 3, 8]
    seen.clear()
    check_file(run, model, x, 4, "it")
    assert seen == [4]


def test_a_file_that_does_not_run_is_named_with_the_batch() -> None:
    def run(given: Any) -> list[Tensor]:
        raise RuntimeError("boom")

    with pytest.raises(ExportError, match="does not run on a batch of 1: boom"):
        check_file(run, nn.Linear(3, 2), torch.randn(8, 3), "dynamic", "it")


def test_errors_are_counted_over_batches_of_any_size() -> None:
    batches = [
        (torch.eye(3), torch.tensor([0, 1, 2])),
        (torch.eye(3)[:1], torch.tensor([1])),
        (torch.zeros(0, 3), torch.zeros(0)),
    ]
    right = runs_of(nn.Identity())

    def shifted(given: Arguments) -> list[Tensor]:
        return [given.args[0].roll(1, 1)]

    assert errors([right, shifted], batches) == [25.0, 75.0]
    assert errors([right], [(torch.eye(3), torch.eye(3))]) is None


def test_a_file_of_one_batch_size_serves_any() -> None:
    def pairs(given: Arguments) -> list[Tensor]:
        assert len(given.args[0]) == 2
        return [given.args[0] + 1]

    assert in_batches(pairs, 2)(torch.arange(5))[0].tolist() == [1, 2, 3, 4, 5]
