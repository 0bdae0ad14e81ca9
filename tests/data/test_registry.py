from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rbprune.data import Data, Source, load
from rbprune.errors import DataError

DATA = os.environ.get("RBPRUNE_DATA")


def labels(source: Source) -> torch.Tensor:
    n = len(source)
    return torch.cat([y for _, y in source.batches(torch.arange(n), 500, seed=0, augment=False)])


def first(source: Source, *, augment: bool, seed: int = 0) -> torch.Tensor:
    return next(iter(source.batches(torch.arange(20), 20, seed=seed, augment=augment)))[0]


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
