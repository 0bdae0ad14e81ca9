"""The idx format of MNIST: a big-endian header with the type and the sizes, then the bytes."""

from __future__ import annotations

import gzip
import struct
import zlib
from importlib.resources.abc import Traversable

import numpy as np
import torch
from torch import Tensor

from rbprune.errors import DataError

UINT8 = 0x08


def read_idx(file: Traversable, dimensions: int) -> Tensor:
    """The uint8 tensor in an idx file, which may be gzipped (named .gz)."""
    raw = file.read_bytes()
    if file.name.endswith(".gz"):
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as cause:
            raise DataError(f"{file}: damaged gzip file: {cause}; download it again") from cause
    header = 4 + 4 * dimensions
    magic = bytes([0, 0, UINT8, dimensions])
    if raw[:4] != magic:
        raise DataError(f"{file}: begins with {raw[:4].hex()}, an idx file of this kind with {magic.hex()}; {_REMEDY}")
    if len(raw) < header:
        raise DataError(f"{file}: expected at least {header:,} bytes, found {len(raw):,}; {_REMEDY}")
    sizes = struct.unpack(f">{dimensions}I", raw[4:header])
    expected = header + int(np.prod(sizes, dtype=np.int64))
    if len(raw) != expected:
        raise DataError(
            f"{file}: expected {expected:,} bytes for {' x '.join(map(str, sizes))} values, found {len(raw):,}; "
            f"{_REMEDY}"
        )
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=header).reshape(sizes).copy())


def write_idx(values: Tensor) -> bytes:
    """The bytes of the idx file that holds these uint8 values.

    >>> write_idx(torch.tensor([1, 2], dtype=torch.uint8)).hex(" ", 4)
    '0000 08010000 00020102'
    """
    header = bytes([0, 0, UINT8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.contiguous().numpy().tobytes()


_REMEDY = "the file is damaged or not the official one, download it again"
