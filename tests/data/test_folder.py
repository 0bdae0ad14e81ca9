from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from rbprune.data import Source, load
from rbprune.data.image import transform
from rbprune.errors import DataError


def test_labels_are_the_sorted_class_names(image_folder: Path) -> None:
    data = load("folder", image_folder, image_size=28, val=3)
    assert (data.classes, data.shape) == (3, (3, 28, 28))
    assert data.val is not None
    assert (len(data.train), len(data.val), len(data.test)) == (9, 3, 6)
    ((x, y),) = data.test.batches(torch.arange(6), 6, seed=0, augment=False)
    assert x.shape == (6, 3, 28, 28) and x.dtype == torch.float32
    assert y.tolist() == [0, 0, 1, 1, 2, 2]
    bee = transform(28, False)(Image.open(image_folder / "val/bee/0.jpg"))
    assert torch.equal(x[2], bee)
    ((_, held),) = data.val.batches(torch.arange(3), 3, seed=0, augment=False)
    assert held.tolist() == [0, 1, 2], "one of every class"


@pytest.mark.parametrize("workers", [0, 1])
def test_training_images_are_augmented_by_the_seed(image_folder: Path, workers: int) -> None:
    data = load("folder", image_folder, image_size=28, workers=workers, val=3)
    assert data.val is not None

    def batch(source: Source, seed: int, augment: bool) -> torch.Tensor:
        ((x, _),) = source.batches(torch.arange(3), 3, seed=seed, augment=augment)
        return x

    assert torch.equal(batch(data.train, 1, True), batch(data.train, 1, True))
    assert not torch.equal(batch(data.train, 1, True), batch(data.train, 2, True))
    assert torch.equal(batch(data.train, 1, False), batch(data.train, 2, False))
    assert torch.equal(batch(data.val, 1, True), batch(data.val, 2, False))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("content", [b"not an image", None])
def test_a_corrupt_image_is_named(image_folder: Path, content: bytes | None, workers: int) -> None:
    file = image_folder / "val/bee/1.JPEG"
    file.write_bytes(file.read_bytes()[:700] if content is None else content)
    data = load("folder", image_folder, image_size=28, workers=workers)
    with pytest.raises(
        DataError,
        match=r'^\S*val/bee/1\.JPEG: not a readable image: .*; replace it, or set data\.corrupt = "skip"$',
    ):
        list(data.test.batches(torch.arange(6), 6, seed=0, augment=False))


def test_grey_images_are_read_as_colour(image_folder: Path) -> None:
    Image.new("L", (30, 30), 99).save(image_folder / "val/ant/0.jpg")
    data = load("folder", image_folder, image_size=28)
    ((x, _),) = data.test.batches(torch.arange(1), 1, seed=0, augment=False)
    assert x.shape == (1, 3, 28, 28)


def test_classes_must_be_the_same(image_folder: Path) -> None:
    shutil.move(image_folder / "val/bee", image_folder / "val/wasp")
    with pytest.raises(DataError, match=r"different classes \(only in train: bee; only in val: wasp\)"):
        load("folder", image_folder)


def test_folders_of_classes_alone_are_told_the_layout(image_folder: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("folder", image_folder / "train")
    for part in ("no 'train' folder", "ant, bee, cat", "DIR/train/<class>/*.jpg and DIR/val/<class>/*.jpg"):
        assert part in str(caught.value)


def test_missing_and_empty_folders_are_named(image_folder: Path) -> None:
    with pytest.raises(DataError, match=r"no 'train' folder in .*/none \(it does not exist\)"):
        load("folder", image_folder / "none")
    for file in (image_folder / "train/cat").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"no image .* in .*train/cat; add some"):
        load("folder", image_folder)


def test_images_that_lie_too_deep_are_not_left_out_in_silence(image_folder: Path) -> None:
    (image_folder / "train/bee/more").mkdir()
    assert len(load("folder", image_folder).train) == 12, "an empty folder does no harm"
    shutil.copy(image_folder / "val/bee/0.jpg", image_folder / "train/bee/more/0.jpg")
    with pytest.raises(DataError, match=r"train/bee/more/0.jpg lies too deep: .*move it up"):
        load("folder", image_folder)


def test_a_folder_called_like_an_image_is_no_image(image_folder: Path) -> None:
    (image_folder / "train/bee/folder.jpg").mkdir()
    assert len(load("folder", image_folder).train) == 12


def test_what_is_called_an_image_and_is_no_file_is_refused_when_it_is_listed(image_folder: Path) -> None:
    place = image_folder / "train/bee"
    os.mkfifo(place / "pipe.jpg")
    with pytest.raises(DataError, match=r"bee/pipe.jpg is a pipe \(FIFO\), not an image; remove it"):
        load("folder", image_folder)
    (place / "pipe.jpg").unlink()
    (place / "zeros.jpg").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"bee/zeros.jpg is a device, not an image; remove it"):
        load("folder", image_folder)
    (place / "zeros.jpg").unlink()
    (place / "again.jpg").symlink_to(place / "0.jpg")
    assert len(load("folder", image_folder).train) == 13


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_becomes_a_pipe_is_not_waited_for(image_folder: Path, workers: int) -> None:
    data = load("folder", image_folder, image_size=28, workers=workers)
    (image_folder / "train/bee/0.jpg").unlink()
    os.mkfifo(image_folder / "train/bee/0.jpg")
    with pytest.raises(DataError, match=r"bee/0.jpg: is a pipe \(FIFO\), not a plain file"):
        list(data.train.batches(torch.arange(12), 4, seed=0, augment=False))


def test_names_with_line_breaks_stay_on_their_line(image_folder: Path) -> None:
    (image_folder / "train/bee/a\nb.jpg").write_bytes(b"no image")
    data = load("folder", image_folder, image_size=28, corrupt="skip")
    list(data.train.batches(torch.arange(13), 13, seed=0, augment=False))
    told = data.skipped and data.skipped.tell()
    assert told is not None and told.endswith("bee/a\\nb.jpg") and "\n" not in told
