"""Batches in an order that depends only on the seed, so that any point of a run can be reached again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DistributedSampler

from rbprune.data.source import ReadsParts, Source
from rbprune.errors import DataError
from rbprune.utils import processes
from rbprune.utils.interrupt import awaited
from rbprune.utils.seeds import mix

Batch = tuple[Any, Any]


class Stream(Protocol):
    """Epochs of (input, target) batches."""

    size: int
    """Examples in an epoch."""
    steps: int
    """Batches in an epoch."""

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from batch ``start`` on."""


@dataclass
class SourceStream:
    """A source of ours, shuffled anew each epoch for training; a last incomplete training batch is left out."""

    source: Source
    batch_size: int
    seed: int = 0
    train: bool = True

    def __post_init__(self) -> None:
        self.size = len(self.source)
        if not self.size:
            raise DataError("the data set is empty")
        whole = self.size // self.batch_size
        self.steps = whole if self.train and whole else -(-self.size // self.batch_size)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        seed, order = mix(self.seed, number), self._order(number)
        return awaited(self.source.batches(order, self.batch_size, seed=seed, augment=self.train, start=start))

    @property
    def reads_parts(self) -> bool:
        """Whether each of several processes can read its own examples alone."""
        return isinstance(self.source, ReadsParts) and self.source.reads_parts

    def parts(self, number: int, start: int, rank: int, world: int) -> Iterator[Batch]:
        """What one of several processes has of the batches of an epoch; only where the source ``reads_parts``."""
        assert isinstance(self.source, ReadsParts)
        seed, order = mix(self.seed, number), self._order(number)
        own = {"rank": rank, "world": world, "seed": seed, "start": start}
        return awaited(self.source.part_batches(order, self.batch_size, augment=self.train, **own))

    def examples_of(self, index: int) -> int:
        """How many examples a batch has, by its place in the epoch."""
        return min(self.batch_size, self.size - index * self.batch_size)

    def _order(self, number: int) -> Tensor:
        """The examples of an epoch."""
        if not self.train:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed(mix(self.seed, number))
        return torch.randperm(self.size, generator=generator)[: self.steps * self.batch_size]


def filled(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches of which something is left: a source that leaves out corrupt examples may empty one."""
    return (batch for batch in batches if rows(batch[1]) != 0)


def own_batches(stream: Stream, rank: int, world: int) -> Iterator[tuple[int, Batch]]:
    """The batches of a stream that a process evaluates, one of every ``world``, with their numbers; of a source of ours
    it reads no others."""
    if world > 1 and isinstance(stream, SourceStream) and not stream.train:
        size, whole = stream.batch_size, torch.arange(stream.size)
        numbers = range(rank, stream.steps, world)
        order = torch.cat([whole[:0], *(whole[number * size : (number + 1) * size] for number in numbers)])
        read = awaited(stream.source.batches(order, size, seed=mix(stream.seed, 0), augment=False))
        batches: Iterator[tuple[int, Batch]] = zip(numbers, read, strict=True)
    else:
        batches = ((number, batch) for number, batch in enumerate(stream.epoch(0)) if number % world == rank)
    return ((number, batch) for number, batch in batches if rows(batch[1]) != 0)


def count_examples(inputs: Any, targets: Any) -> int | None:
    """The examples of a batch: the rows of its targets or, where they are no tensor with rows, of its first input.

    >>> count_examples(torch.zeros(4, 2), torch.zeros(4)), count_examples({"x": torch.zeros(1, 2)}, "a")
    (4, 1)
    """
    found = (rows(leaf) for leaf in (targets, *tree_leaves(inputs)))
    return next((count for count in found if count is not None), None)


def rows(tensor: Any) -> int | None:
    """The first size of a tensor, one row for each example; None of anything else."""
    return len(tensor) if isinstance(tensor, Tensor) and tensor.dim() else None


def first_batch(stream: Stream, number: int) -> Batch:
    """The first batch of an epoch, of which something is left; generators that a loader brings are put back after it.

    The global generators are not.
    """
    kept = [(each, each.get_state()) for each in loader_generators(getattr(stream, "loader", None))]
    try:
        batch = next(filled(stream.epoch(number)), None)
    finally:
        for generator, state in kept:
            generator.set_state(state)
    if batch is None:
        raise DataError("no training example could be read: all were left out as corrupt; check data.path")
    return batch


def loader_generators(loader: Any) -> list[torch.Generator]:
    """The generators that a ``DataLoader`` and its samplers draw from, other than the global one."""
    batches = getattr(loader, "batch_sampler", None)
    places = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    found = [getattr(place, "generator", None) for place in places]
    return [each for each in found if isinstance(each, torch.Generator)]


class LoaderStream:
    """The user's own loader, iterated as it is."""

    def __init__(self, loader: Iterable[Batch], size: int | None = None, name: str = "the loader") -> None:
        if isinstance(loader, Iterator):
            raise DataError(
                f"{name} is a {type(loader).__name__} that can be read only once; "
                "give one that can be iterated again for every epoch, such as a DataLoader or a list"
            )
        self.loader, self.name = loader, name
        try:
            self.steps = len(loader)  # type: ignore[arg-type]
        except TypeError:
            self.steps = sum(1 for _ in loader)
        if not self.steps:
            raise DataError(f"{name} yields no batch; {_why_empty(loader)}")
        self.size = size or self._examples()

    def _examples(self) -> int:
        """What the sampler draws in an epoch; of one that shares the work between processes, all."""
        sampler = getattr(self.loader, "sampler", None)
        found = None if isinstance(sampler, DistributedSampler) else sampler
        for sized in (found, getattr(self.loader, "dataset", None)):
            try:
                return len(sized)  # type: ignore[arg-type]
            except TypeError:
                continue
        return sum(_batch_size(batch) for batch in self.loader)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        self._refuse_divided()
        for index, batch in enumerate(awaited(self.loader)):
            if index >= start:
                yield _pair(batch)

    def _refuse_divided(self) -> None:
        """Refuse a loader that gives every process other examples where every process takes its part of a batch."""
        sampler = getattr(self.loader, "sampler", None)
        if processes.world() > 1 and isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            raise DataError(
                f"{self.name} has a DistributedSampler for {sampler.num_replicas} processes, and rbprune divides every "
                "batch among the processes itself, so most examples would be left out; give every process the same "
                "loader, with shuffle=True and the batch_size of all together"
            )


def _why_empty(loader: Any) -> str:
    """The reason and the remedy, as far as a loader tells them."""
    try:
        examples = len(loader.dataset)
    except (AttributeError, TypeError):
        examples = 0
    if examples and getattr(loader, "drop_last", False):
        return (
            f"its {examples} examples are fewer than its batch size of {loader.batch_size}, and drop_last leaves out "
            "what is no whole batch: use a smaller batch_size or drop_last=False"
        )
    return "give one with at least one (input, target) pair, or leave it out where it may be left out"


def _pair(batch: Any) -> Batch:
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise DataError(f"a loader yields (input, target) pairs; this one gave {type(batch).__name__}")
    return batch[0], batch[1]


def _batch_size(batch: Any) -> int:
    inputs = _pair(batch)[0]
    first = inputs[0] if isinstance(inputs, tuple | list) else inputs
    return len(first) if isinstance(first, Tensor) else 1
