"""Tars as tests want them: good ones, and every kind of bad one."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

Members = Iterable[tuple[str, bytes]]


def jpeg(seed: int = 0, size: tuple[int, int] = (40, 50)) -> bytes:
    out = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(values).save(out, "JPEG")
    return out.getvalue()


def write_tar(path: Path, members: Members, special: Iterable[tarfile.TarInfo] = ()) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in special:
            tar.addfile(info)
    return path


def pairs(keys: Iterable[str], label: int = 0) -> list[tuple[str, bytes]]:
    """An image and a label for every key."""
    found = []
    for i, key in enumerate(keys):
        found += [(f"{key}.jpg", jpeg(i)), (f"{key}.cls", str(label).encode())]
    return found
