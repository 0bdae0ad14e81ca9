"""data.corrupt = "skip": corrupt examples are left out, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rbprune.data import Data, load
from rbprune.errors import CorruptError


@pytest.fixture
def damaged(image_folder: Path) -> Path:
    """Of 12 training images (4 of each class), numbers 1 and 4 to 7 are corrupt; of 6 test images, number 0."""
    (image_folder / "train/ant/1.JPEG").write_bytes(b"")
    for file in (image_folder / "train/bee").iterdir():
        file.write_bytes(file.read_bytes()[:600])
    (image_folder / "val/ant/0.jpg").write_text("text")
    return image_folder


def epoch(data: Data, start: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(data.train.batches(torch.arange(12), 4, seed=3, augment=True, start=start))


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_get_smaller_and_may_be_empty(damaged: Path, workers: int) -> None:
    data = load("folder", damaged, image_size=28, workers=workers, corrupt="skip")
    batches = epoch(data)
    assert [len(x) for x, _ in batches] == [3, 0, 4]
    assert [y.tolist() for _, y in batches] == [[0, 0, 0], [], [2, 2, 2, 2]]
    assert data.skipped is not None
    names = sorted(Path(name).relative_to(damaged).as_posix() for name in data.skipped.names)
    assert names[0] == "train/ant/1.JPEG" and len(names) == 5
    assert all(torch.equal(a[0], b[0]) for a, b in zip(batches, epoch(data), strict=True))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(batches[1:], epoch(data, 1), strict=True))


def test_only_what_a_consumer_has_seen_is_counted(damaged: Path) -> None:
    """A worker reads ahead; a run that stops here must not count what it will read again."""
    data = load("folder", damaged, image_size=28, workers=1, corrupt="skip")
    assert data.skipped is not None
    batches = data.train.batches(torch.arange(12), 4, seed=3, augment=True)
    next(batches)
    assert len(data.skipped.names) == 1


def test_parts_of_the_data_count_together(damaged: Path) -> None:
    data = load("folder", damaged, image_size=28, val=3, corrupt="skip")
    assert data.val is not None and data.skipped is not None
    for source in (data.train, data.val, data.test):
        list(source.batches(torch.arange(len(source)), 4, seed=0, augment=False))
    message = data.skipped.tell()
    assert message is not None and message.startswith('6 corrupt examples left out (data.corrupt = "skip"): ')
    assert message.endswith(" and 3 more")
    assert data.skipped.tell() is None


@pytest.mark.parametrize("workers", [0, 1])
def test_by_default_it_is_an_error(damaged: Path, workers: int) -> None:
    data = load("folder", damaged, image_size=28, workers=workers)
    with pytest.raises(CorruptError, match=r'train/ant/1.JPEG: not a readable image: it is empty; .*corrupt = "skip"'):
        epoch(data)


USERS = """
import torch
from torch.utils.data import Dataset
from rbprune.errors import CorruptError

class Mine(Dataset):
    targets = [0, 1, 0, 1]
    def __len__(self):
        return 4
    def __getitem__(self, index):
        if index == 2:
            raise CorruptError("row 2", "bad checksum")
        return torch.zeros(3), index % 2

def make(path):
    return Mine(), Mine()
"""


def test_a_users_own_data_may_leave_out_examples_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    data = load(f"{tmp_path}/mine.py:make", corrupt="skip")
    ((x, _),) = data.train.batches(torch.arange(4), 4, seed=0, augment=True)
    assert len(x) == 3
    assert data.skipped is not None and data.skipped.names == {"row 2"}
