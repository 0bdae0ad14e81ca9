"""A row of a comparison, as tables and plots show it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """What stands in the table, and where the method lies in the plots; without MACs if it failed."""

    cells: tuple[str, ...]
    macs: float | None = None
    errors: tuple[float, ...] = ()
    """In per cent, one per seed."""

    @property
    def error(self) -> float:
        """The mean over seeds."""
        return statistics.mean(self.errors)

    @property
    def spread(self) -> float:
        """One standard deviation over seeds; 0 for a single one."""
        return statistics.stdev(self.errors) if len(self.errors) > 1 else 0.0


def ceiling(errors: list[float], base: float | None) -> float:
    """Above this an error would squeeze the others together: four times as far from the best as the median is.

    >>> ceiling([8.0, 9.0, 10.0, 60.0], None)
    15.5
    """
    low, middle = min([*errors, *([] if base is None else [base])]), statistics.median(errors)
    return max(middle + 4 * (middle - low), middle * 1.05)
