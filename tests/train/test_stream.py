"""Streams of batches that can be entered anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler, TensorDataset

from rbprune.data import TensorSource
from rbprune.errors import DataError
from rbprune.train.stream import LoaderStream, SourceStream, count_examples, filled, first_batch, own_batches, rows
from rbprune.utils import processes


def source(count: int) -> TensorSource:
    images = torch.arange(count * 4, dtype=torch.uint8).view(count, 1, 2, 2)
    return TensorSource(images, torch.arange(count) % 3, mean=[0.5], std=[0.5])


def test_a_stream_repeats_itself_and_can_be_entered_anywhere() -> None:
    stream = SourceStream(source(50), 8, seed=1)
    assert (stream.size, stream.steps) == (50, 6), "an incomplete training batch is left out"
    whole = list(stream.epoch(3))
    assert len(whole) == 6
    tail = list(stream.epoch(3, start=4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[4:], tail, strict=True))
    assert not torch.equal(whole[0][0], next(iter(stream.epoch(4)))[0])
    held_out = SourceStream(source(50), 8, train=False)
    assert sum(len(y) for _, y in held_out.epoch(0)) == 50
    assert torch.equal(torch.cat([y for _, y in held_out.epoch(0)]), torch.arange(50) % 3)


def test_a_loader_is_taken_as_it_is() -> None:
    loader = DataLoader(TensorDataset(torch.randn(10, 2), torch.zeros(10)), batch_size=4)
    stream = LoaderStream(loader)
    assert (stream.size, stream.steps) == (10, 3)
    batches = [(torch.randn(4, 2), torch.zeros(4)), (torch.randn(3, 2), torch.zeros(3))]
    plain = LoaderStream(batches)
    assert (plain.size, plain.steps) == (7, 2)
    assert torch.equal(next(plain.epoch(0, start=1))[0], batches[1][0])
    with pytest.raises(DataError, match="yields no batch"):
        LoaderStream([])
    with pytest.raises(DataError, match=r"\(input, target\) pairs; this one gave Tensor"):
        list(LoaderStream([torch.zeros(2)], size=2).epoch(0))


def test_looking_at_the_first_batch_changes_nothing_that_follows() -> None:
    data = TensorDataset(torch.arange(32).view(32, 1), torch.zeros(32))
    for loader in (
        DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(1)),
        DataLoader(data, 4, sampler=SubsetRandomSampler(range(32), generator=torch.Generator().manual_seed(1))),
    ):
        stream = LoaderStream(loader)
        seen = first_batch(stream, 0)[0]
        torch.manual_seed(0)  # a loader without workers also asks the global generator
        assert torch.equal(next(stream.epoch(0))[0], seen)
    plain = SourceStream(source(50), 8, seed=1)
    assert torch.equal(first_batch(plain, 3)[0], next(iter(plain.epoch(3)))[0])


def test_the_first_batch_is_one_of_which_something_is_left() -> None:
    batches = [(torch.zeros(0, 2), torch.zeros(0)), (torch.ones(3, 2), torch.zeros(3))]
    assert len(first_batch(LoaderStream(batches, 3), 0)[1]) == 3
    with pytest.raises(DataError, match="all were left out as corrupt"):
        first_batch(LoaderStream(batches[:1], 3), 0)


def test_a_loader_counts_what_its_sampler_draws() -> None:
    data = TensorDataset(torch.zeros(1000, 2), torch.zeros(1000))
    assert LoaderStream(DataLoader(data, batch_size=10)).size == 1000
    assert LoaderStream(DataLoader(data, batch_size=10, sampler=SubsetRandomSampler(range(100)))).size == 100
    shared = DistributedSampler(data, num_replicas=4, rank=0)
    assert LoaderStream(DataLoader(data, batch_size=10, sampler=shared)).size == 1000
    assert LoaderStream([(torch.zeros(3, 2), torch.zeros(3))] * 5).size == 15


def test_data_smaller_than_a_batch_is_one_batch_and_none_is_an_error() -> None:
    assert SourceStream(source(5), 8).steps == 1
    assert len(next(iter(SourceStream(source(5), 8).epoch(0)))[1]) == 5
    with pytest.raises(DataError, match="the data set is empty"):
        SourceStream(source(0), 8)


def test_what_can_be_read_only_once_is_refused() -> None:
    batches = [(torch.zeros(2, 2), torch.zeros(2))]
    with pytest.raises(DataError, match="is a list_iterator that can be read only once"):
        LoaderStream(iter(batches))


def test_a_loader_without_a_length_is_counted() -> None:
    class Endless:
        def __iter__(self) -> Iterator[Any]:
            yield from [((torch.zeros(2, 2), torch.zeros(2, 1)), torch.zeros(2))] * 3

    stream = LoaderStream(Endless())
    assert (stream.steps, stream.size) == (3, 6), "of several inputs the first has a row for each example"


def test_batches_that_lost_all_their_examples_are_left_out() -> None:
    full, empty = (torch.zeros(2, 1), torch.zeros(2)), (torch.zeros(0, 1), torch.zeros(0))
    assert list(filled([full, empty, full])) == [full, full]
    assert [rows(targets) for targets in (torch.zeros(3), torch.tensor(1), [1, 2])] == [3, None, None]
    other = (torch.zeros(2), {"boxes": []})
    assert list(filled([other])) == [other], "targets of another kind cannot be counted"


def test_the_examples_of_a_batch_are_the_rows_of_its_targets_or_else_of_its_first_input() -> None:
    image = torch.zeros(3, 1, 2, 2)
    assert count_examples(image, torch.zeros(3)) == 3
    assert count_examples([image, torch.zeros(3, 1)], [{"boxes": torch.zeros(7, 4)}] * 3) == 3
    assert count_examples({"image": image}, torch.tensor(1.0)) == 3
    assert count_examples("words", None) is None


def test_a_loader_without_a_batch_is_refused_by_name_with_the_reason() -> None:
    few = TensorDataset(torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(
        DataError, match="val_loader yields no batch; its 3 examples are fewer than its batch size of 8"
    ):
        LoaderStream(DataLoader(few, batch_size=8, drop_last=True), name="val_loader")
    with pytest.raises(DataError, match="the loader yields no batch; give one with at least one"):
        LoaderStream([])
    assert LoaderStream(DataLoader(few, batch_size=8)).steps == 1


def test_a_loader_that_is_divided_already_is_refused_among_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.zeros(8, 1), torch.zeros(8))
    divided = LoaderStream(DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0)), name="my_loader")
    assert len(list(divided.epoch(0))) == 4, "one process may train on a part"
    monkeypatch.setattr(processes, "world", lambda: 2)
    with pytest.raises(DataError, match=r"my_loader has a DistributedSampler for 2 processes.*the same loader"):
        next(divided.epoch(0))
    assert len(list(LoaderStream(DataLoader(data)).epoch(0))) == 8


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_processes_evaluate_every_batch_once(world: int) -> None:
    ours = SourceStream(source(23), 4, train=False)
    for stream in (ours, LoaderStream(list(ours.epoch(0)))):
        parts = [list(own_batches(stream, rank, world)) for rank in range(world)]
        found = sorted((number, x.flatten().tolist()) for part in parts for number, (x, _) in part)
        assert found == [(number, x.flatten().tolist()) for number, (x, _) in enumerate(stream.epoch(0))]
