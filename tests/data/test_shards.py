"""Shards as a data set."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from rbprune.data import Data, load
from rbprune.data.image import decode, transform
from rbprune.data.shards import ShardStore, open_shards
from rbprune.data.source import ReadsParts
from rbprune.errors import CorruptError, DataError
from rbprune.utils.processes import own_rows
from tests.data.shard_files import jpeg, pairs, write_tar


def everything(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    ((x, y),) = data.train.batches(torch.arange(len(data.train)), 99, seed=0, augment=False)
    return x, y


def test_examples_come_in_the_order_of_shards_and_members(shards: Path) -> None:
    data = load("shards", shards, image_size=28)
    assert (data.classes, data.shape, len(data.train), len(data.test)) == (3, (3, 28, 28), 9, 3)
    x, y = everything(data)
    assert y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for i in range(9):
        assert torch.equal(x[i], transform(28, False)(decode(jpeg(i % 3), str)))


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_depend_on_order_seed_and_number_alone(shards: Path, workers: int) -> None:
    data = load("shards", shards, image_size=28, workers=workers, val=3)
    assert data.val is not None and len(data.train) == 6
    order = torch.tensor([5, 0, 3, 1, 2])

    def epoch(start: int, seed: int = 1) -> list[torch.Tensor]:
        return [x for x, _ in data.train.batches(order, 2, seed=seed, augment=True, start=start)]

    whole = epoch(0)
    assert all(map(torch.equal, whole, epoch(0)))
    assert all(map(torch.equal, whole[1:], epoch(1)))
    assert not torch.equal(whole[0], epoch(0, seed=2)[0])
    ((_, held),) = data.val.batches(torch.arange(3), 3, seed=0, augment=False)
    assert held.tolist() == [0, 1, 2], "one of every class"


def test_a_folder_that_cannot_be_written_is_read_all_the_same(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rbprune.data.shard_index.write_atomic", refuse)
    assert len(open_shards(shards)[0].labels) == 9
    assert not (shards / "train.index.npz").exists()


def test_shards_are_ordered_by_number(tmp_path: Path) -> None:
    for number in (10, 9, 100):
        write_tar(tmp_path / f"train-{number}.tar", pairs("a", number))
    write_tar(tmp_path / "val-0.tar", pairs("a", 0))
    train, _, classes = open_shards(tmp_path)
    assert (train.labels.tolist(), classes) == ([9, 10, 100], 101)


def test_names_of_classes_say_how_many_there_are(shards: Path) -> None:
    names = shards / "classes.json"
    names.write_text(json.dumps(["ant", "bee", "cat", "dog"]))
    assert open_shards(shards)[2] == 4
    names.write_text(json.dumps(["ant", "bee"]))
    with pytest.raises(
        DataError, match=r"train-000002.tar: label 2, but .*classes.json names 2 classes \(labels 0 to 1\)"
    ):
        open_shards(shards)
    for text, message in (("{", "not JSON"), ("[]", "not a list of class names"), ("[1]", "not a list of class names")):
        names.write_text(text)
        with pytest.raises(DataError, match=f"classes.json: {message}"):
            open_shards(shards)


def test_missing_shards_are_told(shards: Path) -> None:
    with pytest.raises(DataError, match=r"no train-\*.tar in .*/none \(it does not exist\); expected DIR/train-000000"):
        load("shards", shards / "none")
    with pytest.raises(DataError, match="shards: no folder was given"):
        load("shards")
    (shards / "val-000000.tar").unlink()
    with pytest.raises(DataError, match=r"no val-\*.tar in .* \(it holds train-000000.tar, "):
        load("shards", shards)
    write_tar(shards / "val-000000.tar", [])
    with pytest.raises(DataError, match="no image in the 1 shards .*val"):
        load("shards", shards)


def test_the_list_of_shards_must_hold(shards: Path) -> None:
    listing = {"__kind__": "wids-shard-index-v1", "wids_version": 1}
    file = shards / "train.json"

    def listed(*names: str) -> None:
        file.write_text(json.dumps({**listing, "shardlist": [{"url": name, "nsamples": 3} for name in names]}))

    names = [f"train-{i:06d}.tar" for i in range(3)]
    listed(*names)
    assert len(open_shards(shards)[0].labels) == 9
    listed(*names, "train-000003.tar")
    with pytest.raises(DataError, match=r"train.json lists 4 shards, and train-000003.tar is missing \(1 such\); copy"):
        open_shards(shards)
    listed(*names[:2])
    with pytest.raises(DataError, match="train.json lists 2 shards, and train-000002.tar is too many"):
        open_shards(shards)
    file.write_text('{"__kind__": "other"}')
    with pytest.raises(DataError, match="train.json: not a list of shards of kind wids-shard-index-v1"):
        open_shards(shards)
    file.unlink()
    (shards / "shards.json").write_text("{}")
    with pytest.raises(DataError, match="is not complete; call the same 'rbprune shard ... --out .*' again"):
        open_shards(shards)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_is_named_with_its_tar_and_member(shards: Path, workers: int) -> None:
    write_tar(shards / "train-000001.tar", [*pairs("ab", 1), ("x/c.jpg", jpeg()[:700]), ("x/c.cls", b"1")])
    data = load("shards", shards, image_size=28, workers=workers)
    with pytest.raises(
        CorruptError, match=r"train-000001.tar, member x/c.jpg: not a readable image: .*truncated.*; repl"
    ):
        everything(data)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_tar_cut_short_while_it_is_used_is_told(shards: Path, workers: int) -> None:
    data = load("shards", shards, image_size=28, workers=workers, corrupt="skip")
    tar = shards / "train-000002.tar"
    tar.write_bytes(tar.read_bytes()[:1200])
    with pytest.raises(DataError, match=r"train-000002.tar: ends within the member at byte 512, \d+ of its \d+ bytes"):
        everything(data)
    shutil.rmtree(shards)
    with pytest.raises(DataError, match="train-000000.tar: cannot be read: No such file or directory"):
        everything(data)


def test_a_store_survives_another_process_reading_it(shards: Path) -> None:
    """Nothing is kept open, so the same store can be read from anywhere."""
    train = open_shards(shards)[0]
    assert not [value for value in vars(train).values() if hasattr(value, "fileno")]
    assert isinstance(train, ShardStore)
    assert [train.read(i) for i in (8, 0, 8)] == [jpeg(2), jpeg(0), jpeg(2)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world", [2, 4])
def test_every_image_is_read_once_by_one_process_and_one_worker(
    world: int, workers: int, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = load("shards", shards, image_size=28, workers=workers).train
    whole = [x for x, _ in source.batches(torch.arange(9), 4, seed=0, augment=False)]
    log, read = tmp_path / "log", ShardStore.read

    def logged(self: ShardStore, index: int) -> bytes:
        with log.open("a") as file:
            file.write(f"{os.getpid()} {index}\n")
        return read(self, index)

    monkeypatch.setattr(ShardStore, "read", logged)
    assert isinstance(source, ReadsParts) and source.reads_parts
    parts, seen = [], []
    for rank in range(world):
        log.write_text("")
        given = {"rank": rank, "world": world, "seed": 0}
        parts.append([x for x, _ in source.part_batches(torch.arange(9), 4, augment=False, **given)])
        lines = [line.split() for line in log.read_text().splitlines()]
        counting = [own_rows(size, rank, world)[1] for size in (4, 4, 1)]
        assert len(lines) == sum(max(1, count) for count in counting), "its own, or one that stands in"
        assert len({process for process, _ in lines}) == max(1, workers), "the workers share them"
        seen += [int(index) for _, index in lines][: sum(counting)] if workers == 0 else []
    assert workers or sorted(seen) == list(range(9))
    for k, batch in enumerate(whole):
        for rank in range(world):
            rows, count = own_rows(len(batch), rank, world)
            assert torch.equal(parts[rank][k], batch[rows]) and len(parts[rank][k]) == max(1, count)


def test_parts_are_augmented_by_the_process_and_can_be_entered_anywhere(shards: Path) -> None:
    source = load("shards", shards, image_size=28).train
    assert isinstance(source, ReadsParts)

    def epoch(rank: int, start: int = 0) -> list[torch.Tensor]:
        order = torch.zeros(8, dtype=torch.long)  # one image, so that only the augmentation differs
        found = source.part_batches(order, 4, rank=rank, world=2, seed=1, augment=True, start=start)
        return [x for x, _ in found]

    assert all(map(torch.equal, epoch(0)[1:], epoch(0, start=1)))
    assert not torch.equal(epoch(0)[0], epoch(1)[0]) and not torch.equal(epoch(0)[0], epoch(0)[1])


def test_where_corrupt_images_are_left_out_every_process_reads_whole_batches(shards: Path) -> None:
    source = load("shards", shards, image_size=28, corrupt="skip").train
    assert isinstance(source, ReadsParts) and not source.reads_parts
