"""Any map-style torch data set as a source, read by this process or by workers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from rbprune.data.source import Skipped, check_labels, check_order
from rbprune.errors import CorruptError, DataError, RbpruneError
from rbprune.utils.processes import own_rows
from rbprune.utils.seeds import mix


class DatasetSource:
    """A data set of (x, y) pairs; ``evaluation`` is the same examples with the transform used without augmentation.

    ``labels``, where known, let the data be split by class; with ``classes`` every batch is checked for others.

    An example that raises :class:`rbprune.errors.CorruptError` ends the reading, or, where ``skipped`` is given, is
    left out of its batch and noted there.

    Random transforms may draw from the global generators of torch, numpy and Python: these are seeded for each
    batch, and put back after it. A transform with a generator of its own is beyond that.

    >>> from torch.utils.data import TensorDataset
    >>> source = DatasetSource(TensorDataset(torch.arange(3.0), torch.tensor([0, 1, 0])))
    >>> [y.tolist() for _, y in source.batches(torch.tensor([2, 1, 0]), 2, seed=0, augment=True)]
    [[0, 1], [0]]
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        workers: int = 0,
        *,
        evaluation: Dataset[Any] | None = None,
        labels: Tensor | None = None,
        classes: int | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        self._train = dataset
        self.can_read_plain = evaluation is not None
        """Whether it was told how its examples are read without augmentation."""
        self._evaluation = dataset if evaluation is None else evaluation
        self._workers = workers
        self._labels = labels
        self._classes = classes
        self._skipped = skipped
        for name, value in (("evaluation", self._evaluation), ("labels", labels)):
            if value is not None and _length(value) != len(self):
                raise DataError(f"dataset has {len(self)} examples but {name} {_length(value)}; give the same ones")

    def __len__(self) -> int:
        return _length(self._train)

    @property
    def labels(self) -> Tensor | None:
        """The label of every example, if they were given."""
        return self._labels

    def subset(self, indices: Tensor) -> DatasetSource:
        """The source of the examples at these indices."""
        chosen = indices.tolist()
        return DatasetSource(
            Subset(self._train, chosen),
            self._workers,
            evaluation=Subset(self._evaluation, chosen) if self.can_read_plain else None,
            labels=None if self._labels is None else self._labels[indices],
            classes=self._classes,
            skipped=self._skipped,
        )

    def plain(self) -> DatasetSource:
        """The source of the same examples that never augments them."""
        return DatasetSource(
            self._evaluation, self._workers, labels=self._labels, classes=self._classes, skipped=self._skipped
        )

    def batches(
        self, order: Tensor, batch_size: int, *, seed: int, augment: bool, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches from ``start`` on; see :meth:`rbprune.data.Source.batches`."""
        return self.part_batches(order, batch_size, rank=0, world=1, seed=seed, augment=augment, start=start)

    @property
    def reads_parts(self) -> bool:
        """Whether the rows of a process are known before they are read: not where corrupt examples are left out."""
        return self._skipped is None

    def part_batches(
        self, order: Tensor, batch_size: int, *, rank: int, world: int, seed: int, augment: bool, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The rows of one process; see :meth:`rbprune.data.source.ReadsParts.part_batches`. No others are read, and
        every worker reads other batches."""
        count = check_order(order, batch_size, start, len(self))
        dataset = self._train if augment else self._evaluation
        skip = self._skipped is not None
        batches = _BatchDataset(dataset, order, batch_size, seed, skip=skip, process=(rank, world))
        loader: DataLoader[Any] = DataLoader(
            batches,
            batch_size=None,
            sampler=range(start, count),
            num_workers=self._workers,
            collate_fn=_unchanged,
            generator=torch.Generator(),  # else the loader draws from the global one
        )
        for batch in loader:
            if isinstance(batch, RbpruneError):
                raise batch
            x, y, left_out = batch
            if self._skipped is not None:
                self._skipped.add(left_out)
            if self._classes is not None:
                check_labels(y, self._classes, "a batch of the data set")
            yield x, y


class _BatchDataset(Dataset[Any]):
    """A data set whose item k is the whole batch k, so that everything random about a batch happens in one place; or
    the rows of it that one of several processes has."""

    def __init__(
        self,
        dataset: Dataset[Any],
        order: Tensor,
        batch_size: int,
        seed: int,
        *,
        skip: bool,
        process: tuple[int, int] = (0, 1),
    ) -> None:
        self.dataset, self.order, self.batch_size, self.seed, self.skip = dataset, order, batch_size, seed, skip
        self.rank, self.world = process

    def __getitem__(self, k: int) -> tuple[Tensor, Tensor, list[str]] | RbpruneError:
        """x, y and the names of the corrupt examples left out; or the error, for the main process to raise."""
        whole = self.order[k * self.batch_size : (k + 1) * self.batch_size].tolist()
        indices = whole[own_rows(len(whole), self.rank, self.world)[0]]
        place = (k,) if self.world == 1 else (k, self.rank)
        pairs: list[tuple[Any, Any]] = []
        left_out: list[str] = []
        try:
            with seeded(mix(self.seed, *place)):
                for index in indices:
                    try:
                        pairs.append(self._example(index))
                    except CorruptError as error:
                        if not self.skip:
                            raise
                        left_out.append(error.where)
                x, y = _collate(pairs) if pairs else (torch.empty(0), torch.empty(0, dtype=torch.long))
                return x, y, left_out
        except RbpruneError as error:
            return error  # raised inside a worker it would arrive with a traceback for a message

    def _example(self, index: int) -> tuple[Any, Any]:
        return as_pair(self.dataset[index], f"example {_index_in_whole(self.dataset, index)} of the data set")


def as_pair(example: Any, where: str) -> tuple[Any, Any]:
    """The pair (x, y) that an example must be; anything else is an error that says what it is instead."""
    if not isinstance(example, tuple | list) or len(example) != 2:
        what = f"a {type(example).__name__}"
        what += f" of {len(example)}" if isinstance(example, tuple | list) else ""
        what += f" with {', '.join(map(repr, list(example)[:5]))}" if isinstance(example, dict) else ""
        raise DataError(f"{where} is {what}, not (x, y); return a pair")
    return example[0], example[1]


def _index_in_whole(dataset: Any, index: int) -> int:
    """The index, in the whole data set, of the example at ``index`` of a subset of it."""
    while isinstance(dataset, Subset):
        dataset, index = dataset.dataset, dataset.indices[index]
    return index


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch (CPU), numpy and Python, and put them back as they were on leaving."""
    generator = torch.default_generator
    states = generator.get_state(), np.random.get_state(), random.getstate()
    generator.manual_seed(seed)
    np.random.seed(seed % (1 << 32))
    random.seed(seed)
    try:
        yield
    finally:
        generator.set_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _collate(pairs: list[tuple[Any, Any]]) -> tuple[Tensor, Tensor]:
    """The pairs as one batch; y must be class numbers."""
    try:
        x, y = default_collate(pairs)
    except (TypeError, RuntimeError) as cause:
        raise DataError(
            f"the examples of a batch cannot be stacked: {cause}; each x must be a tensor of the same shape"
        ) from cause
    if not isinstance(y, Tensor) or y.is_floating_point() or y.ndim != 1:
        found = f"{y.dtype} {list(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise DataError(f"the labels of a batch are {found}; each y must be one integer, the class number")
    return x, y.long()


def _unchanged(batch: Any) -> Any:
    """Items of :class:`_BatchDataset` are collated already."""
    return batch


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError as cause:
        raise DataError(f"{type(dataset).__name__} has no length; give a map-style data set with __len__") from cause
