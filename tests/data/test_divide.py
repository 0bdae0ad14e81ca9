from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rbprune.data import Source, load, split
from rbprune.errors import ConfigError


def labels(source: Source) -> torch.Tensor:
    n = len(source)
    return torch.cat([y for _, y in source.batches(torch.arange(n), 500, seed=0, augment=False)])


def everything(source: Source) -> torch.Tensor:
    ((x, _),) = source.batches(torch.arange(len(source)), len(source), seed=0, augment=False)
    return x


def first(source: Source, *, augment: bool, seed: int = 0) -> torch.Tensor:
    return next(iter(source.batches(torch.arange(20), 20, seed=seed, augment=augment)))[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=60), st.floats(0, 1), st.integers(0, 5))
def test_a_split_is_a_stratified_partition(labels: list[int], fraction: float, seed: int) -> None:
    y = torch.tensor(labels, dtype=torch.int64)
    val = int(fraction * len(labels))
    train, held = split(y, val, seed)
    assert len(held) == val
    assert sorted(train.tolist() + held.tolist()) == list(range(len(labels)))
    assert train.tolist() == sorted(train.tolist()) and held.tolist() == sorted(held.tolist())
    for label in set(labels):
        assert abs((y[held] == label).sum() - (y == label).sum() * val / len(labels)) < 1


def test_the_seed_decides_and_nothing_else() -> None:
    y = torch.arange(1000) % 10
    first = split(y, 100, 1)[1]
    torch.manual_seed(7)
    assert torch.equal(split(y, 100, 1)[1], first)
    assert not torch.equal(split(y, 100, 2)[1], first)
    assert not torch.equal(first, torch.arange(100))


def test_without_labels_a_number_is_enough() -> None:
    train, held = split(50, 20)
    assert (len(train), len(held)) == (30, 20)
    assert train.dtype == held.dtype == torch.int64


@pytest.mark.parametrize("val", [-1, 51])
def test_more_than_there_is_cannot_be_held_out(val: int) -> None:
    with pytest.raises(ConfigError, match=f"val={val}: between 0 and 50"):
        split(50, val)


def test_validation_and_training_examples_are_apart_and_stratified() -> None:
    data = load("mnist-subset", val=500, limit=1000)
    assert data.val is not None
    assert labels(data.train).bincount().tolist() == [100] * 10
    assert labels(data.val).bincount().tolist() == [50] * 10
    whole = load("mnist-subset", val=500)
    assert whole.val is not None
    images = [everything(whole.train), everything(whole.val)]
    together = everything(load("mnist-subset").train)
    assert torch.cat(images).sum((1, 2, 3)).sort().values.equal(together.sum((1, 2, 3)).sort().values)


def test_only_training_is_augmented_and_only_on_request() -> None:
    data = load("mnist-subset", val=100)
    assert data.val is not None
    assert not torch.equal(first(data.train, augment=True), first(data.train, augment=False))
    assert torch.equal(first(data.val, augment=True), first(data.val, augment=False))
    assert torch.equal(first(data.test, augment=True), first(data.test, augment=False))
    plain = load("mnist-subset", val=100, augment=False)
    assert torch.equal(first(plain.train, augment=True), first(data.train, augment=False))


def test_a_limit_beyond_the_data_keeps_all() -> None:
    assert len(load("mnist-subset", val=1000, limit=99999).train) == 5000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val": 6000}, "data.val=6000: mnist-subset has 6000 training examples"),
        ({"val": -1}, "data.val=-1"),
        ({"limit": 0}, "data.limit=0: keep at least 1"),
    ],
)
def test_impossible_divisions_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("mnist-subset", **options)  # type: ignore[arg-type]
