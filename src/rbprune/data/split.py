"""Dividing examples in two, in the same proportions of every class."""

from __future__ import annotations

import torch
from torch import Tensor

from rbprune.errors import ConfigError


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
    return [(labels == label).nonzero().flatten() for label in torch.unique(labels)]


def _quotas(sizes: list[int], total: int) -> list[int]:
    """Shares of ``total`` in proportion to ``sizes``, rounded by the largest remainder so that they add up."""
    count = max(sum(sizes), 1)
    quotas = [size * total // count for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: -(sizes[i] * total % count))
    for i in by_remainder[: total - sum(quotas)]:
        quotas[i] += 1
    return quotas
