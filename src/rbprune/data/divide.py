"""Holding out validation examples and keeping a part of the rest, in the same proportions of every class."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rbprune.data.dataset import DatasetSource
from rbprune.data.source import Data, Divisible
from rbprune.errors import ConfigError, DataError

SPLIT_SEED = 0
"""The seed of every division, so that runs of different seeds are compared on the same examples."""


def divide(name: str, data: Data, val: int, augment: bool, limit: int | None) -> Data:
    """Hold out ``val`` training examples, unless there is a validation set, and keep at most ``limit`` of the others.

    Without ``augment`` the training examples are never augmented. ``name`` is what errors call the data.
    """
    hold_out = val > 0 and data.val is None
    if val < 0 or (hold_out and val >= len(data.train)):
        raise ConfigError(f"data.val={val}: {name} has {len(data.train)} training examples; hold out fewer, or 0")
    if limit is not None and limit < 1:
        raise ConfigError(f"data.limit={limit}: keep at least 1 training example, or leave the limit out")
    remaining = len(data.train) - (val if hold_out else 0)
    keep = remaining if limit is None else min(limit, remaining)
    if not hold_out and keep == remaining and augment:
        return data
    train = data.train
    if not isinstance(train, Divisible):
        raise DataError(
            f"{name}: its training source {type(train).__name__} cannot be divided; give it the methods labels, subset "
            "and plain (see rbprune.data.source.Divisible), or leave out data.val, data.limit and data.augment=false"
        )
    if not augment and isinstance(train, DatasetSource) and not train.can_read_plain:
        raise DataError(
            f"{name}: data.augment=false needs to know how its examples are read without augmentation; return an "
            "rbprune.data.Data whose training source is DatasetSource(dataset, evaluation=plain_dataset)"
        )
    if hold_out:
        kept, held = split(_labels(train), val, SPLIT_SEED)
        data = replace(data, val=train.subset(held).plain())
        train = train.subset(kept)
    if keep < remaining:
        train = train.subset(split(_labels(train), keep, SPLIT_SEED)[1])
    return replace(data, train=train if augment else train.plain())


def _labels(source: Divisible) -> Tensor | int:
    """What :func:`split` divides by: the labels, or only their number where they are unknown."""
    labels = source.labels
    return len(source) if labels is None else labels


def split(labels: Tensor | int, val: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sorted indices for training and for validation, exactly ``val`` of them for validation.

    With labels every class is divided in the same proportion, to the nearest example; with only the number of
    examples the division is uniform.

    >>> train, val = split(torch.tensor([0, 0, 0, 0, 1, 1]), val=3)
    >>> len(train), len(val[val < 4]), len(val[val >= 4])
    (3, 2, 1)
    """
    count = labels if isinstance(labels, int) else len(labels)
    if not 0 <= val <= count:
        raise ConfigError(f"val={val}: between 0 and {count} of the {count} examples can be held out")
    groups = [torch.arange(count)] if isinstance(labels, int) else _groups(labels)
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(count, dtype=torch.bool)
    for group, quota in zip(groups, _quotas([len(g) for g in groups], val), strict=True):
        held[group[torch.randperm(len(group), generator=generator)[:quota]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def _groups(labels: Tensor) -> list[Tensor]:
    """The indices of the examples of each class."""
    return [(labels == label).nonzero().flatten() for label in torch.unique(labels)]


def _quotas(sizes: list[int], total: int) -> list[int]:
    """Shares of ``total`` in proportion to ``sizes``, rounded by the largest remainder so that they add up."""
    count = max(sum(sizes), 1)
    quotas = [size * total // count for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: -(sizes[i] * total % count))
    for i in by_remainder[: total - sum(quotas)]:
        quotas[i] += 1
    return quotas
