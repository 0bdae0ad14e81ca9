"""Data by name: the known sets, folders of images and the user's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from torch import Tensor

from rbprune.data.cifar10 import CIFAR10, read_cifar10
from rbprune.data.dataset import DatasetSource
from rbprune.data.divide import divide
from rbprune.data.folder import open_folder
from rbprune.data.image import ImageDataset, ImageLook, ImageStore
from rbprune.data.mnist import MNIST, read_mnist, read_subset
from rbprune.data.shards import open_shards
from rbprune.data.source import Data, Skipped
from rbprune.data.tensor import ImageTraits, TensorSource
from rbprune.data.user import read_user
from rbprune.errors import ConfigError, DataError, nearest
from rbprune.utils.imports import is_spec

__all__ = ["NAMES", "Data", "load"]

NAMES = ("mnist-subset", "mnist", "cifar10", "folder", "shards")


def load(
    name: str,
    path: str | Path | None = None,
    *,
    val: int = 0,
    augment: bool = True,
    workers: int = 0,
    image_size: int = 224,
    look: ImageLook | None = None,
    limit: int | None = None,
    corrupt: Literal["error", "skip"] = "error",
) -> Data:
    """Load a name of ``NAMES``, or what the user's ``module:factory`` returns for ``path``.

    ``val`` training examples are held out for validation and never augmented (a validation set that the user's
    factory returns stays as it is, and data sets that it returns as a pair are read as they are). ``limit`` keeps at
    most so many of the remaining training examples. Both choices are stratified and always the same. ``workers``,
    ``image_size`` and ``look`` (how images are resized and normalised) concern data that is read from files as it is
    needed: ``folder``, ``shards`` and, for ``workers``, the user's own. ``corrupt`` says whether an image of theirs
    that cannot be decoded is an error or is left out of its batch.

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
        data = _from_files(*open_folder(_folder(name, path)), workers, image_size, skipped, look)
    elif name == "shards":
        data = _from_files(*open_shards(_folder(name, path)), workers, image_size, skipped, look)
    elif is_spec(name):
        data = read_user(name, path, workers, skipped)
    else:
        known = ", ".join([*NAMES, "package.module:factory", "path/file.py:factory"])
        raise DataError(f"unknown data {name!r}{nearest(name, NAMES)} (known: {known})")
    return divide(name, data, val, augment, limit)


def _folder(name: str, path: str | Path | None) -> Path:
    """The folder that the user named, without which data of files cannot be found."""
    if path is None:
        raise DataError(f"{name}: no folder was given; name the one that holds its files with --set data.path=DIR")
    return Path(path).expanduser()


def _in_memory(traits: ImageTraits, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> Data:
    """Data whose images are all in memory."""
    source = partial(TensorSource, mean=traits.mean, std=traits.std)
    augmented = source(*train, crop_padding=traits.crop_padding, flip=traits.flip)
    return Data(augmented, None, source(*test), traits.classes, traits.shape)


def _from_files(
    train: ImageStore,
    val: ImageStore,
    classes: int,
    workers: int,
    size: int,
    skipped: Skipped | None,
    look: ImageLook | None,
) -> Data:
    """Data whose images are read as they are needed; the images of ``val`` are those to test on."""
    if size < 1:
        raise ConfigError(f"image_size must be at least 1 pixel, got {size}")
    augmented, plain = (ImageDataset(train, size=size, augment=augment, look=look) for augment in (True, False))
    return Data(
        DatasetSource(augmented, workers, evaluation=plain, labels=train.labels, skipped=skipped),
        None,
        DatasetSource(
            ImageDataset(val, size=size, augment=False, look=look), workers, labels=val.labels, skipped=skipped
        ),
        classes,
        (3, size, size),
        skipped,
    )
