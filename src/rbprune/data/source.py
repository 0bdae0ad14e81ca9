"""What the training loop needs of data, and the checks that all sources share.

A source gives batches that depend only on the order of the examples, the seed and the number of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from torch import Tensor

from rbprune.errors import ConfigError, DataError

MOST_NAMED = 3
"""How many of the corrupt examples are named in a warning."""


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
        """The label of every example, or None where only reading them all would tell."""
        ...

    def subset(self, indices: Tensor) -> Self:
        """The source of the examples at these indices, sharing memory with this one."""
        ...

    def plain(self) -> Self:
        """The source of the same examples that never augments them."""
        ...


@runtime_checkable
class ReadsParts(Source, Protocol):
    """A source of which each of several processes can read its own examples alone."""

    @property
    def reads_parts(self) -> bool:
        """Whether it can with its settings: where corrupt examples are left out, only reading tells how many stay."""
        ...

    def part_batches(
        self, order: Tensor, batch_size: int, *, rank: int, world: int, seed: int, augment: bool, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Of every batch that ``batches`` gives, the rows of one process (``utils.processes.own_rows``).

        Augmentation depends on ``(seed, k, rank)``.
        """
        ...


class Skipped:
    """The names of the corrupt examples that were left out since :meth:`tell` was last called.

    All sources of one data set share it.

    >>> skipped = Skipped()
    >>> skipped.add(["b.jpg", "a.jpg"])
    >>> skipped.tell()
    '2 corrupt examples left out (data.corrupt = "skip"): a.jpg, b.jpg'
    >>> skipped.tell() is None
    True
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Note that the examples of these names were left out of a batch."""
        self.names.update(names)

    def tell(self) -> str | None:
        """A warning with their number and the first of them, or None without any; then begin anew."""
        names = sorted(self.names)
        self.names = set()
        if not names:
            return None
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        plural = "s" if len(names) > 1 else ""
        named = ", ".join(names[:MOST_NAMED])
        return f'{len(names)} corrupt example{plural} left out (data.corrupt = "skip"): {named}{more}'


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


def check_order(order: Tensor, batch_size: int, start: int, examples: int) -> int:
    """The number of batches in ``order``, ceil(len(order) / batch_size): the last one may be smaller.

    Indices beyond the number of ``examples``, and a ``start`` beyond the last batch, are errors.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
    count = -(-len(order) // batch_size)
    if not 0 <= start <= count:
        raise ConfigError(f"start must be a batch of the epoch, 0 to {count}, got {start}")
    if len(order) and not (int(order.min()) >= 0 and int(order.max()) < examples):
        raise DataError(
            f"order holds indices from {int(order.min())} to {int(order.max())}, but the data has {examples} "
            f"examples; use indices from 0 to {examples - 1}"
        )
    return count


def check_labels(labels: Tensor, classes: int, where: object) -> None:
    """Refuse labels outside 0 to ``classes`` - 1, which the loss cannot take; ``where`` names their file."""
    wrong = ((labels < 0) | (labels >= classes)).nonzero().flatten()
    if len(wrong):
        raise DataError(
            f"{where}: label {int(labels[wrong[0]])} of example {int(wrong[0])} is not one of 0 to {classes - 1} "
            f"({len(wrong)} such); the data is damaged, or has another number of classes"
        )
