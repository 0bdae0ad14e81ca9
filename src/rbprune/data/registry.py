"""Data by name: the known sets, folders of images and the user's own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from torch import Tensor

from rbprune.data.cifar10 import read_cifar10
from rbprune.data.dataset import DatasetSource
from rbprune.data.folder import open_folder
from rbprune.data.image import Images, Store
from rbprune.data.mnist import read_mnist, read_subset
from rbprune.data.shards import open_shards
from rbprune.data.skipped import Skipped
from rbprune.data.source import Data, Divisible
from rbprune.data.split import split
from rbprune.data.tensor import TensorSource
from rbprune.data.traits import CIFAR10, MNIST, Traits
from rbprune.data.user import read_user
from rbprune.errors import ConfigError, DataError, nearest
from rbprune.utils.imports import is_spec

__all__ = ["NAMES", "Data", "load"]

NAMES = ("mnist-subset", "mnist", "cifar10", "folder", "shards")
SPLIT_SEED = 0


def load(
    name: str,
    path: str | Path | None = None,
    *,
    val: int = 0,
    augment: bool = True,
    workers: int = 0,
    image_size: int = 224,
    limit: int | None = None,
    corrupt: Literal["error", "skip"] = "error",
) -> Data:
    """Load a name of ``NAMES``, or what the user's ``module:factory`` returns for ``path``.

    ``val`` training examples are held out for validation and never augmented (a validation set that the user's
    factory returns stays as it is, and data sets that it returns as a pair are read as they are). ``limit`` keeps at
    most so many of the remaining training examples. Both choices are stratified and always the same. ``workers`` and
    ``image_size`` concern data that is read from files as it is needed: ``folder``, ``shards`` and the user's own; so
    does ``corrupt``, which says whether an image that cannot be decoded is an error or is left out of its batch.

    >>> data = load("mnist-subset", val=1000, limit=200)
    >>> len(data.train), len(data.val), len(data.test), data.classes, data.shape
    (200, 1000, 1000, 10, (1, 28, 28))
    """
    skipped = Skipped() if corrupt == "skip" else None
    if name == "mnist-subset":
        data = _in_memory(MNIST, read_subset("train"), read_subset("t10k"))
    elif name == "mnist":
        folder = _folder(name, path)
        data = _in_memory(MNIST, read_mnist(folder, "train"), read_mnist(folder, "t10k"))
    elif name == "cifar10":
        folder = _folder(name, path)
        data = _in_memory(CIFAR10, read_cifar10(folder, "train"), read_cifar10(folder, "test"))
    elif name == "folder":
        data = _images(*open_folder(_folder(name, path)), workers, image_size, skipped)
    elif name == "shards":
        data = _images(*open_shards(_folder(name, path)), workers, image_size, skipped)
    elif is_spec(name):
        data = read_user(name, path, workers, skipped)
    else:
        known = ", ".join([*NAMES, "package.module:factory", "path/file.py:factory"])
        raise DataError(f"unknown data {name!r}{nearest(name, NAMES)} (known: {known})")
    return _divide(name, data, val, augment, limit)


def _folder(name: str, path: str | Path | None) -> Path:
    if path is None:
        raise DataError(f"{name}: no folder was given; name the one that holds its files with --set data.path=DIR")
    return Path(path).expanduser()


def _in_memory(traits: Traits, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> Data:
    source = partial(TensorSource, mean=traits.mean, std=traits.std)
    augmented = source(*train, crop_padding=traits.crop_padding, flip=traits.flip)
    return Data(augmented, None, source(*test), traits.classes, traits.shape)


def _images(train: Store, val: Store, classes: int, workers: int, size: int, skipped: Skipped | None) -> Data:
    if size < 1:
        raise ConfigError(f"image_size must be at least 1 pixel, got {size}")
    augmented, plain = (Images(train, size=size, augment=augment) for augment in (True, False))
    return Data(
        DatasetSource(augmented, workers, evaluation=plain, labels=train.labels, skipped=skipped),
        None,
        DatasetSource(Images(val, size=size, augment=False), workers, labels=val.labels, skipped=skipped),
        classes,
        (3, size, size),
        skipped,
    )


def _divide(name: str, data: Data, val: int, augment: bool, limit: int | None) -> Data:
    hold_out = val > 0 and data.val is None
    if val < 0 or (hold_out and val >= len(data.train)):
        raise ConfigError(f"data.val={val}: {name} has {len(data.train)} training examples; hold out fewer, or 0")
    if limit is not None and limit < 1:
        raise ConfigError(f"data.limit={limit}: keep at least 1 training example, or leave the limit out")
    remaining = len(data.train) - (val if hold_out else 0)
    keep = remaining if limit is None else min(limit, remaining)
    if not hold_out and keep == remaining and augment:
        return data
    train = data.train
    if not isinstance(train, Divisible):
        raise DataError(
            f"{name}: its training source {type(train).__name__} cannot be divided; give it the methods labels, subset "
            "and plain (see rbprune.data.source.Divisible), or leave out data.val, data.limit and data.augment=false"
        )
    if not augment and isinstance(train, DatasetSource) and not train.two_sided:
        raise DataError(
            f"{name}: data.augment=false needs to know how its examples are read without augmentation; return an "
            "rbprune.data.Data whose training source is DatasetSource(dataset, evaluation=plain_dataset)"
        )
    if hold_out:
        kept, held = split(_labels(train), val, SPLIT_SEED)
        data = replace(data, val=train.subset(held).plain())
        train = train.subset(kept)
    if keep < remaining:
        train = train.subset(split(_labels(train), keep, SPLIT_SEED)[1])
    return replace(data, train=train if augment else train.plain())


def _labels(source: Divisible) -> Tensor | int:
    labels = source.labels
    return len(source) if labels is None else labels
