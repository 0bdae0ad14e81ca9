from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from rbprune.data import DatasetSource
from rbprune.errors import DataError


class Noisy(Dataset[Any]):
    """x = the index, followed by a draw from each global generator."""

    def __init__(self, n: int = 11, noise: bool = True) -> None:
        self.n, self.noise = n, noise

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        draws = [torch.rand(()).item(), float(np.random.rand()), random.random()] if self.noise else [0.0, 0.0, 0.0]
        return torch.tensor([index, *draws], dtype=torch.float64), index % 3


class Returning(Noisy):
    def __init__(self, make: Any) -> None:
        super().__init__(4)
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


ORDER = torch.tensor([3, 10, 0, 7, 7, 1, 2])


def epoch(source: DatasetSource, *, seed: int = 5, augment: bool = True, start: int = 0) -> list[Tensor]:
    return [torch.cat([x, y[:, None]], 1) for x, y in source.batches(ORDER, 3, seed=seed, augment=augment, start=start)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


def test_batches_follow_the_order() -> None:
    batches = epoch(DatasetSource(Noisy()))
    assert [len(b) for b in batches] == [3, 3, 1]
    assert torch.cat(batches)[:, 0].tolist() == ORDER.tolist()
    assert torch.cat(batches)[:, -1].tolist() == (ORDER % 3).tolist()


def test_random_transforms_depend_on_seed_and_batch_alone() -> None:
    source = DatasetSource(Noisy())
    whole = epoch(source)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    assert same(epoch(source), whole)
    assert same(epoch(source, start=1), whole[1:])
    other = epoch(source, seed=6)
    for draw in (1, 2, 3):
        assert not torch.equal(torch.cat(other)[:, draw], torch.cat(whole)[:, draw])
        assert len(set(torch.cat(whole)[:, draw].tolist())) == len(ORDER)


def test_workers_give_the_same_batches() -> None:
    whole = epoch(DatasetSource(Noisy()))
    assert same(epoch(DatasetSource(Noisy(), workers=2)), whole)
    assert same(epoch(DatasetSource(Noisy(), workers=2), start=2), whole[2:])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_global_generators_are_untouched(workers: int) -> None:
    before = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    epoch(DatasetSource(Noisy(), workers=workers))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert repr(np.random.get_state()) == before[1]
    assert random.getstate() == before[2]


def test_without_augmentation_the_evaluation_data_set_is_read() -> None:
    source = DatasetSource(Noisy(), evaluation=Noisy(noise=False))
    assert torch.cat(epoch(source, augment=False))[:, 1:4].abs().sum() == 0
    assert torch.cat(epoch(source.plain(), augment=True))[:, 1:4].abs().sum() == 0
    assert torch.cat(epoch(source))[:, 1:4].abs().sum() > 0


def test_subset_keeps_labels_and_both_data_sets() -> None:
    source = DatasetSource(Noisy(), evaluation=Noisy(noise=False), labels=torch.arange(11) % 3)
    part = source.subset(torch.tensor([10, 4]))
    assert len(part) == 2
    assert part.labels is not None and part.labels.tolist() == [1, 1]
    ((x, y),) = part.batches(torch.tensor([1, 0]), 2, seed=0, augment=False)
    assert x.tolist() == [[4, 0, 0, 0], [10, 0, 0, 0]]
    assert y.tolist() == [1, 1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda i: torch.zeros(2), r"^example 3 of the data set is a Tensor, not \(x, y\)"),
        (lambda i: (object(), 0), "^the examples of a batch cannot be stacked"),
        (lambda i: (torch.zeros(i + 1), 0), "tensor of the same shape$"),
        (lambda i: (torch.zeros(2), 0.5), r"labels of a batch are torch.float64 \[3\]"),
        (lambda i: (torch.zeros(2), "cat"), "labels of a batch are (list|tuple)"),
    ],
)
def test_what_cannot_be_a_batch_is_named(make: Any, message: str, workers: int) -> None:
    source = DatasetSource(Returning(make), workers)
    with pytest.raises(DataError, match=message):
        list(source.batches(torch.tensor([3, 1, 2]), 3, seed=0, augment=True))


def test_a_label_that_is_no_class_is_named() -> None:
    with pytest.raises(DataError, match="label 2 of example 2 is not one of 0 to 1"):
        list(DatasetSource(Noisy(), classes=2).batches(torch.arange(3), 3, seed=0, augment=True))


def test_data_sets_must_have_the_same_length() -> None:
    with pytest.raises(DataError, match="dataset has 11 examples but evaluation 5"):
        DatasetSource(Noisy(), evaluation=Noisy(5))

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(DataError, match="Stream has no length"):
        len(DatasetSource(Stream()))
