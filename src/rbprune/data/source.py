"""What the training loop needs of data: batches that depend only on the order, the seed and their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from torch import Tensor

from rbprune.data.skipped import Skipped


class Source(Protocol):
    """Labelled examples that can be fetched by index."""

    def __len__(self) -> int: ...

    def batches(
        self, order: Tensor, batch_size: int, *, seed: int, augment: bool, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batch k = the examples ``order[k * batch_size : (k + 1) * batch_size]`` for k = start, start + 1, ...

        The augmentation of batch k depends only on ``(seed, k)``: an epoch that is resumed at ``start`` gives the
        very batches that the uninterrupted one gives. The global random generators are neither read nor changed.

        Where corrupt examples are left out a batch is smaller; one of which nothing is left has no rows in x and y.
        """
        ...


@runtime_checkable
class Divisible(Source, Protocol):
    """A source of which a part can be taken."""

    @property
    def labels(self) -> Tensor | None:
        """The label of every example, or nothing where only reading them all would tell."""
        ...

    def subset(self, indices: Tensor) -> Self:
        """The examples at these indices, sharing memory with this source."""
        ...

    def plain(self) -> Self:
        """The same examples, never augmented."""
        ...


@dataclass(frozen=True)
class Data:
    """A data set: what to train, validate and test on, its number of classes and the shape of one example.

    ``skipped`` collects the corrupt examples that its sources leave out, where they do.
    """

    train: Source
    val: Source | None
    test: Source
    classes: int
    shape: tuple[int, ...]
    skipped: Skipped | None = None
