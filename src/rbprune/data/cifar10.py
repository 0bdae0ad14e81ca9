"""CIFAR10 from either of its official layouts, binary or Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rbprune.data.image import IMAGENET_MEAN, IMAGENET_STD
from rbprune.data.restricted_pickle import read_plain_pickle
from rbprune.data.source import check_labels
from rbprune.data.tensor import ImageTraits
from rbprune.errors import DataError
from rbprune.utils.plain_file import read_plain

CIFAR10 = ImageTraits(shape=(3, 32, 32), classes=10, mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_padding=4, flip=True)
Bytes = NDArray[np.uint8]
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS  # a label, then the red, green and blue planes
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
NAMES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}


def read_cifar10(path: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] and labels [N] of ``part``, "train" or "test"."""
    images, labels = [], []
    for file in _find(path, part):
        x, y = _read_binary(file) if file.suffix == ".bin" else _read_python(file)
        check_labels(y, CIFAR10.classes, file)
        images.append(x)
        labels.append(y)
    return torch.from_numpy(np.concatenate(images).reshape(-1, *CIFAR10.shape)), torch.cat(labels)


def _find(path: Path, part: str) -> list[Path]:
    tried = [(path / BINARY, ".bin"), (path / PYTHON, ""), (path, ".bin"), (path, "")]
    missing: list[Path] = []
    for folder, ending in tried:
        files = [folder / f"{name}{ending}" for name in NAMES[part]]
        absent = [file for file in files if not file.is_file()]
        if not absent:
            return files
        if len(absent) < len(files):
            missing = absent
    if missing:
        raise DataError(f"cifar10: incomplete, {', '.join(map(str, missing))} missing; unpack the whole archive again")
    raise DataError(
        f"cifar10: no {NAMES[part][0]}.bin (binary) or {NAMES[part][0]} (Python) in "
        f"{', '.join(dict.fromkeys(str(folder) for folder, _ in tried))}; download cifar-10-binary.tar.gz from the "
        "CIFAR page and unpack it, then name its folder with --set data.path=DIR"
    )


def _read_binary(file: Path) -> tuple[Bytes, Tensor]:
    raw = np.frombuffer(bytearray(read_plain(file, DataError)), np.uint8)
    if not raw.size or raw.size % RECORD:
        whole = max(-(-raw.size // RECORD), 1)
        raise DataError(
            f"{file}: expected {whole * RECORD:,} bytes ({whole:,} records of {RECORD:,}; the official file has "
            f"{10_000 * RECORD:,}), found {raw.size:,}; the file is cut short, unpack the archive again"
        )
    records = raw.reshape(-1, RECORD)
    return records[:, 1:], torch.from_numpy(records[:, 0].astype(np.int64))


def _read_python(file: Path) -> tuple[Bytes, Tensor]:
    content = read_plain_pickle(file)
    if not isinstance(content, dict) or not {"data", "labels"} <= content.keys():
        raise DataError(f"{file}: holds no 'data' and 'labels'; use the official cifar-10-python.tar.gz")
    images, labels = content["data"], content["labels"]
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != PIXELS or not len(images):
        raise DataError(f"{file}: 'data' is {_shape(images)}, expected [N, {PIXELS}]; unpack the archive again")
    whole = isinstance(labels, list) and all(isinstance(y, int) and y.bit_length() < 64 for y in labels)
    if not whole or len(labels) != len(images):
        raise DataError(f"{file}: 'labels' must be a list of {len(images)} integers; unpack the archive again")
    return images, torch.tensor(labels, dtype=torch.int64)


def _shape(value: object) -> str:
    return str(list(value.shape)) if isinstance(value, np.ndarray) else type(value).__name__
