"""``rbprune shard``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.command import Refused, run


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two classes of two small images each, for training and for validation; one is corrupt."""
    for part in ("train", "val"):
        for number, name in enumerate(("cat", "dog")):
            (tmp_path / "in" / part / name).mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (8, 8), (50 * number, 100 * i, 0)).save(tmp_path / "in" / part / name / f"{i}.jpg")
    (tmp_path / "in" / "train" / "dog" / "1.jpg").write_bytes(b"none")
    return tmp_path / "in"


def test_images_are_packed_and_the_corrupt_left_out(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("shard", str(images), "--out", str(tmp_path / "out"))
    assert run(*words, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["train"]["images"], summary["val"]["images"], summary["classes"]) == (3, 4, 2)
    assert [entry["file"] for entry in summary["skipped"]] == ["train/dog/1.jpg"]
    assert run(*words) == 0, "called again it finds everything done"
    shown = capsys.readouterr().out
    assert "train: 3 images in 1 shards" in shown
    assert "left out: 1 corrupt images" in shown
    assert f"use them with: --set data.name=shards --set data.path={tmp_path / 'out'}" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("shard", "nowhere", "--out", "x"), "nowhere"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
