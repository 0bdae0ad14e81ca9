"""How far forecasts of cuts can be trusted: the factor by which those of a run were wrong so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

LEAST = 1e-3
"""Rises below that many nats per example are too small to learn from."""
MOST = 4.0
"""A correction is at most so many times, or one so-manieth."""


def forecast_correction(cuts: Sequence[Mapping[str, Any]]) -> float:
    """What the next forecast is to be multiplied by: the geometric mean of measured over forecast in the cuts so far.

    Where cuts leave the region in which the loss is quadratic, forecasts are too low in all stages of a run alike. A
    cut counts where both are known and large enough to mean something; 1 where there is none yet.

    >>> forecast_correction([])
    1.0
    >>> forecast_correction([{"forecast": 0.01, "measured": 0.04}, {"forecast": 0.02, "measured": 0.02}])
    2.0
    """
    pairs = [(cut.get("forecast"), cut.get("measured")) for cut in cuts]
    logs = [math.log(m / f) for f, m in pairs if f is not None and m is not None and min(f, m) >= LEAST]
    if not logs:
        return 1.0
    return min(MOST, max(1 / MOST, math.exp(sum(logs) / len(logs))))
