"""Scales and round tick values for the charts."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPACING = 14.0
"""Pixels between two names."""


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values from ``low`` to ``high`` at steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0, 32)
    [0.0, 10.0, 20.0, 30.0]
    """
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def padded(values: list[float], below: float = 0.08) -> tuple[float, float]:
    """A range with some air around ``values``, the share ``below`` under them; never below 0 if they are not."""
    low, high = min(values), max(values)
    span = (high - low) or 0.5 * abs(high) or 1.0
    return (max(0.0, low - below * span) if low >= 0 else low - below * span), high + 0.08 * span


def apart(levels: list[float], top: float, bottom: float) -> list[float]:
    """Heights for names, near the given ones, at least SPACING apart and between top and bottom.

    >>> apart([50.0, 51.0, 100.0], 0, 100)
    [50.0, 64.0, 100.0]
    """
    order = sorted(range(len(levels)), key=levels.__getitem__)
    found = sorted(levels)
    for i in range(1, len(found)):
        found[i] = max(found[i], found[i - 1] + SPACING)
    found[-1] = min(found[-1], bottom)
    for i in range(len(found) - 2, -1, -1):
        found[i] = min(found[i], found[i + 1] - SPACING)
    placed = [0.0] * len(levels)
    for i, index in enumerate(order):
        placed[index] = found[i]
    return placed


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.begin + share * (self.end - self.begin), 1)
