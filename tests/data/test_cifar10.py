from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rbprune.data import load
from rbprune.data.cifar10 import RECORD, read_cifar10
from rbprune.errors import DataError

from .conftest import pixels

CifarFiles = Callable[[str], Path]


@pytest.mark.parametrize("layout", ["bin", "py"])
@pytest.mark.parametrize("inside", [False, True])
def test_both_layouts_are_read(cifar_files: CifarFiles, layout: str, inside: bool) -> None:
    path = cifar_files(layout)
    path = path / f"cifar-10-batches-{layout}" if inside else path
    images, labels = read_cifar10(path, "train")
    assert images.dtype == torch.uint8 and labels.dtype == torch.int64
    assert torch.equal(images, torch.cat([pixels(10, 3072, seed=i) for i in range(5)]).view(50, 3, 32, 32))
    assert labels.tolist() == [(j + i) % 10 for i in range(5) for j in range(10)]
    assert len(read_cifar10(path, "test")[0]) == 10


def test_missing_files_are_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("cifar10", tmp_path)
    for part in ("data_batch_1.bin", str(tmp_path), "download cifar-10-binary.tar.gz", "--set data.path=DIR"):
        assert part in str(caught.value)


def test_one_missing_file_is_named(cifar_files: CifarFiles) -> None:
    path = cifar_files("bin")
    (path / "cifar-10-batches-bin/data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"incomplete, .*data_batch_3\.bin missing"):
        read_cifar10(path, "train")


@pytest.mark.parametrize(("size", "expected"), [(3 * RECORD - 1, 3 * RECORD), (0, RECORD)])
def test_a_file_cut_short_is_named_with_both_sizes(cifar_files: CifarFiles, size: int, expected: int) -> None:
    path = cifar_files("bin")
    file = path / "cifar-10-batches-bin/test_batch.bin"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DataError, match=rf"test_batch\.bin: expected {expected:,} bytes .* found {size:,};"):
        read_cifar10(path, "test")


def test_a_label_that_is_no_class_is_named(cifar_files: CifarFiles) -> None:
    path = cifar_files("bin")
    file = path / "cifar-10-batches-bin/test_batch.bin"
    raw = bytearray(file.read_bytes())
    raw[4 * RECORD] = 77
    file.write_bytes(raw)
    with pytest.raises(DataError, match=r"test_batch\.bin: label 77 of example 4 is not one of 0 to 9"):
        read_cifar10(path, "test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds no 'data' and 'labels'"),
        ({"data": "text", "labels": []}, "'data' is str"),
        ({"data": np.zeros((2, 5), np.uint8), "labels": [0, 0]}, r"'data' is \[2, 5\], expected \[N, 3072\]"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "'labels' must be a list of 2 integers"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [-1]}, "label -1 of example 0"),
        ({"data": np.zeros((1, 3072), np.float32), "labels": [0]}, "an array of type 'f4'"),
    ],
)
def test_a_python_file_with_other_content_is_named(cifar_files: CifarFiles, content: object, message: str) -> None:
    path = cifar_files("py")
    (path / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match=f"test_batch.*{message}"):
        read_cifar10(path, "test")


def test_a_label_beyond_all_numbers_is_refused(cifar_files: Callable[[str], Path]) -> None:
    path = cifar_files("py")
    content = {"labels": [1, 10**50], "data": np.zeros((2, 3072), np.uint8)}
    (path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match="'labels' must be a list of 2 integers"):
        read_cifar10(path, "test")
