from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rbprune.data import Data, Source, load
from rbprune.errors import ConfigError, DataError

DATA = os.environ.get("RBPRUNE_DATA")


def labels(source: Source) -> torch.Tensor:
    n = len(source)
    return torch.cat([y for _, y in source.batches(torch.arange(n), 500, seed=0, augment=False)])


def everything(source: Source) -> torch.Tensor:
    ((x, _),) = source.batches(torch.arange(len(source)), len(source), seed=0, augment=False)
    return x


def first(source: Source, *, augment: bool, seed: int = 0) -> torch.Tensor:
    return next(iter(source.batches(torch.arange(20), 20, seed=seed, augment=augment)))[0]


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


def test_mnist_is_shifted_by_two_pixels_and_not_mirrored(mnist_files: Callable[..., Path]) -> None:
    data = load("mnist", mnist_files())
    x = first(data.test, augment=False)
    shifted = first(data.train, augment=True)
    base = first(data.train, augment=False)
    black = (0 - 0.1307) / 0.3081
    padded = torch.nn.functional.pad(base, (2, 2, 2, 2), value=black)
    for i in range(20):
        crops = [padded[i, 0, r : r + 28, c : c + 28] for r in range(5) for c in range(5)]
        assert any(torch.allclose(shifted[i, 0], crop, atol=1e-6) for crop in crops)
    assert x.shape == (20, 1, 28, 28)


def test_cifar10(cifar_files: Callable[[str], Path]) -> None:
    data = load("cifar10", str(cifar_files("bin")), val=10)
    assert data.val is not None
    assert (len(data.train), len(data.val), len(data.test)) == (40, 10, 10)
    assert (data.classes, data.shape) == (10, (3, 32, 32))
    assert labels(data.val).bincount().tolist() == [1] * 10


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


def test_an_unknown_name_is_answered_with_the_near_one() -> None:
    with pytest.raises(DataError, match=r"unknown data 'cifar-10'; did you mean 'cifar10'\? \(known: mnist-subset, "):
        load("cifar-10")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "folder"])
def test_a_missing_path_is_asked_for(name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: no folder was given.*--set data.path=DIR"):
        load(name)


@pytest.mark.skipif(DATA is None, reason="RBPRUNE_DATA names no folder with MNIST and CIFAR10")
@pytest.mark.parametrize(("name", "sizes"), [("mnist", (60000, 10000)), ("cifar10", (50000, 10000))])
def test_the_official_files(name: str, sizes: tuple[int, int]) -> None:
    data: Data = load(name, DATA)
    assert (len(data.train), len(data.test)) == sizes
    assert labels(data.test).bincount().numel() == 10
