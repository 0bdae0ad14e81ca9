from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from rbprune.data import load
from rbprune.data.embedded.make import make
from rbprune.data.mnist import read_idx, read_mnist, read_subset, write_idx
from rbprune.errors import DataError

from .conftest import pixels

DATA = os.environ.get("RBPRUNE_DATA")


@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("compressed", [False, True])
def test_files_are_found_where_downloads_put_them(
    mnist_files: Callable[..., Path], folder: str, compressed: bool
) -> None:
    path = mnist_files(folder, compressed=compressed)
    images, labels = read_mnist(path, "train")
    assert images.shape == (40, 1, 28, 28) and images.dtype == torch.uint8
    assert labels.tolist() == [i % 10 for i in range(40)]


def test_missing_files_are_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("mnist", tmp_path)
    for part in ("train-images-idx3-ubyte.gz", str(tmp_path / "MNIST/raw"), "--set data.path=DIR", "mnist-subset"):
        assert part in str(caught.value)


def test_a_label_that_is_no_digit_is_named(mnist_files: Callable[..., Path]) -> None:
    path = mnist_files()
    file = path / "train-labels-idx1-ubyte"
    raw = bytearray(file.read_bytes())
    raw[8 + 17] = 10
    file.write_bytes(raw)
    with pytest.raises(DataError, match="train-labels-idx1-ubyte: label 10 of example 17 is not one of 0 to 9"):
        read_mnist(path, "train")


def test_images_and_labels_must_belong_together(mnist_files: Callable[..., Path]) -> None:
    path = mnist_files()
    (path / "train-labels-idx1-ubyte").write_bytes((path / "t10k-labels-idx1-ubyte").read_bytes())
    with pytest.raises(DataError, match=r"holds 40 images but .* 20 labels"):
        read_mnist(path, "train")


@pytest.mark.parametrize(("part", "each"), [("train", 600), ("t10k", 100)])
def test_the_embedded_part_has_as_many_of_every_digit(part: str, each: int) -> None:
    images, labels = read_subset(part)
    assert labels.bincount().tolist() == [each] * 10
    assert images.shape == (10 * each, 1, 28, 28)
    assert len(set(labels[:10].tolist())) > 3, "the digits are mixed, not one after the other"
    assert 0.1307 - 0.005 < images.float().mean() / 255 < 0.1307 + 0.005


def test_the_embedded_part_is_small_and_attributed() -> None:
    folder = files("rbprune.data") / "embedded"
    sizes = [len(f.read_bytes()) for f in folder.iterdir() if f.name.endswith(".gz")]
    assert len(sizes) == 4 and sum(sizes) < 2_000_000
    notice = (folder / "NOTICE.md").read_text()
    assert all(word in notice for word in ("LeCun", "Cortes", "Burges", "CC BY-SA 3.0"))


@pytest.mark.skipif(DATA is None, reason="RBPRUNE_DATA names no folder with MNIST")
def test_the_embedded_part_can_be_made_again(tmp_path: Path) -> None:
    assert DATA is not None
    for name, content in make(Path(DATA)).items():
        (tmp_path / name).write_bytes(content)
    for part in ("train", "t10k"):
        for made, embedded in zip(read_mnist(tmp_path, part), read_subset(part), strict=True):
            assert torch.equal(made, embedded)


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


def bomb(sizes: tuple[int, ...], length: int) -> bytes:
    """A gzipped idx file of zeros."""
    header = bytes([0, 0, 8, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)
    return gzip.compress(header + bytes(length), 9)


def test_a_gzip_bomb_is_refused_by_what_its_header_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of 78 MB; nothing of it is unpacked beyond the header."""
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(bomb((100_000, 28, 28), 78_400_000))
    read: list[int] = []
    plain = gzip.GzipFile.read

    def noted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        read.append(-1 if size is None else size)
        return plain(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", noted)
    with pytest.raises(DataError, match=r"says that it holds 78,400,016 bytes for 100000 x 28 x 28 values.*gunzip"):
        read_idx(file, 3)
    assert read == [16]


def test_a_gzip_bomb_is_left_when_it_goes_on_after_its_end(tmp_path: Path) -> None:
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(bomb((2, 28, 28), 50_000_000))
    with pytest.raises(DataError, match=r"expected 1,584 bytes for 2 x 28 x 28 values, found more"):
        read_idx(file, 3)
    file.write_bytes(bomb((2**32 - 1,) * 3, 10))
    with pytest.raises(DataError, match=r"says that it holds"):
        read_idx(file, 3)
