"""What runs over several seeds say: their mean, their spread, and whether two methods differ by more than chance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache

import numpy as np

LEVEL = 0.95


def mean_and_spread(values: Sequence[float]) -> str:
    """Mean, and standard deviation where there are several.

    >>> mean_and_spread([1.0, 2.0, 3.0]), mean_and_spread([1.5])
    ('2.00 +- 1.00', '1.50')
    """
    mean = f"{statistics.fmean(values):.2f}"
    return f"{mean} +- {statistics.stdev(values):.2f}" if len(values) > 1 else mean


@cache
def student(freedom: int, level: float = LEVEL) -> float:
    """How many standard errors to either side hold that share of Student's t.

    With t = sqrt(n) tan(phi) the density of t becomes cos(phi)^(n - 1), up to a constant.

    >>> round(student(1), 2), round(student(2), 3), round(student(30), 3)
    (12.71, 4.303, 2.042)
    """
    phi = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(phi) ** (freedom - 1)
    within = np.cumsum(density[1:] + density[:-1])
    return math.sqrt(freedom) * math.tan(float(np.interp(level * within[-1], within, phi[1:])))


def interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Mean difference over seeds, and how far its 95 % interval goes to either side; None for fewer than two.

    >>> [round(x, 3) for x in interval([0.1, 0.2, 0.3])]
    [0.2, 0.248]
    """
    if len(differences) < 2:
        return None
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, student(len(differences) - 1) * error
