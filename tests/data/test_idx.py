from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from rbprune.data.idx import read_idx, write_idx
from rbprune.errors import DataError

from .conftest import pixels


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5)])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_what_is_written_is_read(tmp_path: Path, shape: tuple[int, ...], ending: str) -> None:
    values = pixels(*shape)
    file = tmp_path / f"values{ending}"
    file.write_bytes(gzip.compress(write_idx(values)) if ending else write_idx(values))
    assert torch.equal(read_idx(file, len(shape)), values)


def test_a_file_cut_short_is_named_with_both_sizes(tmp_path: Path) -> None:
    file = tmp_path / "images"
    file.write_bytes(write_idx(pixels(3, 4, 5))[:-1])
    with pytest.raises(DataError, match=r"images: expected 76 bytes for 3 x 4 x 5 values, found 75.*download it again"):
        read_idx(file, 3)
    file.write_bytes(write_idx(pixels(3, 4, 5))[:10])
    with pytest.raises(DataError, match="expected at least 16 bytes, found 10"):
        read_idx(file, 3)


def test_another_format_is_named(tmp_path: Path) -> None:
    file = tmp_path / "images"
    file.write_bytes(b"<html>")
    with pytest.raises(DataError, match="begins with 3c68746d, an idx file of this kind with 00000803"):
        read_idx(file, 3)


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(write_idx(pixels(99)))[:-12]])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "images.gz"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"images\.gz: damaged gzip file"):
        read_idx(file, 1)
