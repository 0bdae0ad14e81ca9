from __future__ import annotations

import pytest
import torch

from rbprune.data.dataset import DatasetSource
from rbprune.data.source import Divisible, Skipped, check_labels, check_order
from rbprune.data.tensor import TensorSource
from rbprune.errors import ConfigError, DataError


def test_the_last_batch_may_be_smaller() -> None:
    assert check_order(torch.arange(10), 4, 0, 10) == 3
    assert check_order(torch.arange(0), 4, 0, 10) == 0


@pytest.mark.parametrize(("order", "message"), [([0, 10], "from 0 to 10, but the data has 10"), ([-1], "from -1 to")])
def test_an_index_that_does_not_exist_is_named(order: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_order(torch.tensor(order), 4, 0, 10)


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        check_order(torch.arange(10), 0, 0, 10)
    with pytest.raises(ConfigError, match="0 to 3, got 4"):
        check_order(torch.arange(10), 4, 4, 10)


def test_labels_that_are_no_class_are_named_with_their_place_and_number() -> None:
    check_labels(torch.tensor([0, 2, 1]), 3, "file")
    check_labels(torch.tensor([], dtype=torch.long), 3, "file")
    with pytest.raises(DataError, match=r"^file: label 3 of example 1 is not one of 0 to 2 \(2 such\)"):
        check_labels(torch.tensor([0, 3, -1]), 3, "file")


def test_an_example_left_out_twice_counts_once_and_is_told_once() -> None:
    skipped = Skipped()
    assert skipped.tell() is None
    skipped.add(["a"])
    skipped.add(["a"])
    assert skipped.tell() == '1 corrupt example left out (data.corrupt = "skip"): a'
    assert skipped.tell() is None
    skipped.add("edcba")
    assert skipped.tell() == '5 corrupt examples left out (data.corrupt = "skip"): a, b, c and 2 more'


def test_our_own_sources_can_be_divided() -> None:
    images, labels = torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.long)
    tensors = TensorSource(images, labels, mean=[0], std=[1])
    dataset = DatasetSource(torch.utils.data.TensorDataset(images, labels))
    assert isinstance(tensors, Divisible) and isinstance(dataset, Divisible)
    assert not isinstance([1, 2], Divisible)
