from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rbprune.data.embedded import make
from rbprune.data.mnist import read_mnist


def test_as_many_of_every_digit_are_taken_in_their_order(
    mnist_files: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "SIZES", {"train": 20, "t10k": 10})
    raw, out = mnist_files("raw"), tmp_path / "out"
    out.mkdir()
    for name, content in make.make(raw).items():
        (out / name).write_bytes(content)
    whole = [image.sum().item() for image in read_mnist(raw, "train")[0]]
    images, labels = read_mnist(out, "train")
    assert labels.bincount().tolist() == [2] * 10
    places = [whole.index(image.sum().item()) for image in images]
    assert places == sorted(places)
    assert labels.tolist() == [place % 10 for place in places]
    assert read_mnist(out, "t10k")[1].bincount().tolist() == [1] * 10
