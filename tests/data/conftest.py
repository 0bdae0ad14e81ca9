"""Tiny files in the official formats."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from rbprune.data.mnist import write_idx
from tests.data.shard_files import pairs, write_tar


def pixels(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.fixture
def mnist_files(tmp_path: Path) -> Callable[..., Path]:
    def write(folder: str = ".", *, compressed: bool = False) -> Path:
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        for part, n in (("train", 40), ("t10k", 20)):
            labels = (torch.arange(n) % 10).to(torch.uint8)
            for name, values in (("images-idx3", pixels(n, 28, 28)), ("labels-idx1", labels)):
                raw = write_idx(values)
                file = place / f"{part}-{name}-ubyte{'.gz' if compressed else ''}"
                file.write_bytes(gzip.compress(raw) if compressed else raw)
        return tmp_path

    return write


@pytest.fixture
def cifar_files(tmp_path: Path) -> Callable[[str], Path]:
    """Six files of ten records in the 'bin' or the 'py' layout, with the same content."""

    def write(layout: str) -> Path:
        place = tmp_path / f"cifar-10-batches-{layout}"
        place.mkdir()
        for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
            images, labels = pixels(10, 3072, seed=i).numpy(), (np.arange(10) + i) % 10
            if layout == "bin":
                records = np.concatenate([labels[:, None].astype(np.uint8), images], axis=1)
                (place / f"{name}.bin").write_bytes(records.tobytes())
            else:
                content = {"batch_label": name, "labels": labels.tolist(), "data": images, "filenames": ["a.png"] * 10}
                raw = pickle.dumps(content, protocol=2)
                # as the official files, which an old numpy wrote
                (place / name).write_bytes(raw.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
        return tmp_path

    return write


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for part, n in (("train", 4), ("val", 2)):
        for name in ("cat", "ant", "bee"):
            place = tmp_path / part / name
            place.mkdir(parents=True)
            for i in range(n):
                values = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(values).save(place / f"{i}.{'JPEG' if i else 'jpg'}")
    return tmp_path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three training shards with labels 0, 1 and 2, of 3 images each, and one of validation."""
    for i in range(3):
        write_tar(tmp_path / f"train-{i:06d}.tar", pairs([f"t{i}/{k}" for k in range(3)], i))
    write_tar(tmp_path / "val-000000.tar", pairs("uvw", 1))
    return tmp_path
