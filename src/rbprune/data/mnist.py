"""MNIST from its official files, and the small part of it that comes with the package."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import torch
from torch import Tensor

from rbprune.data.idx import read_idx
from rbprune.data.labels import check_labels
from rbprune.data.traits import MNIST
from rbprune.errors import DataError

FOLDERS = (".", "raw", "MNIST/raw")


def read_mnist(path: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 1, 28, 28] and labels [N] of ``part``, "train" or "t10k"."""
    images = _find(path, f"{part}-images-idx3-ubyte")
    labels = _find(path, f"{part}-labels-idx1-ubyte")
    return _read(images, labels)


def read_subset(part: str) -> tuple[Tensor, Tensor]:
    """The same of the embedded part: 600 training and 100 test images of every digit."""
    folder = files("rbprune.data") / "embedded"
    return _read(folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz")


def _read(images: Traversable, labels: Traversable) -> tuple[Tensor, Tensor]:
    x, y = read_idx(images, 3).unsqueeze(1), read_idx(labels, 1).to(torch.int64)
    if x.shape[1:] != MNIST.shape:
        raise DataError(f"{images}: images of {list(x.shape[1:])}, expected {list(MNIST.shape)}; use the MNIST files")
    if len(x) != len(y) or not len(x):
        raise DataError(
            f"{images} holds {len(x)} images but {labels} {len(y)} labels; take both from the same download"
        )
    check_labels(y, MNIST.classes, labels)
    return x, y


def _find(path: Path, name: str) -> Path:
    tried = [path / folder / f"{name}{ending}" for folder in FOLDERS for ending in ("", ".gz")]
    for file in tried:
        if file.is_file():
            return file
    raise DataError(
        f"mnist: no file {name} or {name}.gz in {', '.join(str(path / folder) for folder in FOLDERS)}; download the "
        "four idx files (train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
        "t10k-labels-idx1-ubyte.gz) from the MNIST page and name their folder with --set data.path=DIR; "
        "'mnist-subset' needs no download"
    )
