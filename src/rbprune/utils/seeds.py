"""The order of an epoch: which examples make batch k, and the seed of everything random about it."""

from __future__ import annotations

from torch import Tensor

from rbprune.errors import ConfigError, DataError

_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """One well-spread 64-bit seed per tuple of integers, by a round of SplitMix64 for each.

    >>> mix(0, 1) != mix(1, 0)
    True
    """
    state = 0
    for number in numbers:
        state = _splitmix(state ^ number)
    return state


def _splitmix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def check_order(order: Tensor, batch_size: int, start: int, examples: int) -> int:
    """The number of batches in ``order``, once it is known that every index in it exists."""
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
