"""Seeds that are made of several numbers, such as the seed of a run, a phase and a step."""

from __future__ import annotations

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
