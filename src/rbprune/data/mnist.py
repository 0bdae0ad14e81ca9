"""MNIST from its official idx files, and the small part of it that comes with the package.

An idx file is a big-endian header with the type of its values and the sizes, followed by the values.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from rbprune.data.source import check_labels
from rbprune.data.tensor import ImageTraits
from rbprune.errors import DataError
from rbprune.utils.plain_file import read_plain

MNIST = ImageTraits(shape=(1, 28, 28), classes=10, mean=(0.1307,), std=(0.3081,), crop_padding=2, flip=False)
FOLDERS = (".", "raw", "MNIST/raw")
"""Where, below the folder that the user names, downloads put the files."""
UINT8 = 0x08
"""The type of values that MNIST's idx files hold."""
MOST_COMPRESSED, _ALWAYS_ALLOWED = 10, 1 << 26
"""How many times longer than a gzip file its content may be (MNIST's are 5 times), and how long it may be anyway."""
_REMEDY = "the file is damaged or not the official one, download it again"


def read_mnist(path: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 1, 28, 28] and labels [N] of ``part``, "train" or "t10k"."""
    images = _find(path, f"{part}-images-idx3-ubyte")
    labels = _find(path, f"{part}-labels-idx1-ubyte")
    return _read_pair(images, labels)


def read_subset(part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 1, 28, 28] and labels [N] of the embedded part: 600 training and 100 test images of every digit."""
    folder = files("rbprune.data") / "embedded"
    return _read_pair(folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz")


def _read_pair(images: Traversable, labels: Traversable) -> tuple[Tensor, Tensor]:
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


def read_idx(file: Traversable, dimensions: int) -> Tensor:
    """The uint8 tensor of so many dimensions in an idx file, which is gzipped if its name ends in .gz."""
    raw = read_plain(file, DataError) if isinstance(file, Path) else file.read_bytes()
    if not file.name.endswith(".gz"):
        return _read_values(file, io.BytesIO(raw), dimensions, None)
    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            return _read_values(file, stream, dimensions, max(_ALWAYS_ALLOWED, MOST_COMPRESSED * len(raw)))
    except (OSError, EOFError, zlib.error) as cause:
        raise DataError(f"{file}: damaged gzip file: {cause}; download it again") from cause


def _read_values(file: Traversable, stream: IO[bytes] | gzip.GzipFile, dimensions: int, most: int | None) -> Tensor:
    """What ``read_idx`` reads, from a stream that is believed for at most so many bytes: its header says how many."""
    header = 4 + 4 * dimensions
    magic = bytes([0, 0, UINT8, dimensions])
    head = stream.read(header)
    if head[:4] != magic:
        raise DataError(f"{file}: begins with {head[:4].hex()}, an idx file of this kind with {magic.hex()}; {_REMEDY}")
    if len(head) < header:
        raise DataError(f"{file}: expected at least {header:,} bytes, found {len(head):,}; {_REMEDY}")
    sizes = struct.unpack(f">{dimensions}I", head[4:])
    expected = header + math.prod(sizes)
    if most is not None and expected > most:
        raise DataError(
            f"{file}: says that it holds {expected:,} bytes for {' x '.join(map(str, sizes))} values, more than "
            f"{MOST_COMPRESSED} times its own length, which images do not; if it is genuine, decompress it with gunzip"
        )
    # in pieces, so that a header that promises too much costs nothing
    pieces, left = [], expected - header + 1
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left != 1:
        found = f"{expected - left + 1:,}" if left else "more"
        raise DataError(
            f"{file}: expected {expected:,} bytes for {' x '.join(map(str, sizes))} values, found {found}; {_REMEDY}"
        )
    return torch.from_numpy(np.frombuffer(bytearray(b"".join(pieces)), np.uint8).reshape(sizes))


def write_idx(values: Tensor) -> bytes:
    """The bytes of the idx file that holds these uint8 values.

    >>> write_idx(torch.tensor([1, 2], dtype=torch.uint8)).hex(" ", 4)
    '0000 08010000 00020102'
    """
    header = bytes([0, 0, UINT8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.contiguous().numpy().tobytes()
