"""What a sum over layers leaves out of a network's latency, fitted to networks that were measured as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rbprune.graph.latency_table import Features, Rest

RIDGE = 1e-3
"""How much a departure from "the layers are all" counts beside the errors of the fit, all as shares of the latency."""
BOUNDS = ((0.3, 2.0), (-math.inf, math.inf), (0.0, math.inf), (0.0, math.inf), (-math.inf, math.inf))
"""Of scale, per_element, per_uneven, per_weight and constant: parts that differ more from the whole do not make it up,
and neither uneven widths nor weights that have to be waited for save time."""
CACHES = (0.0, *(2.0**power for power in range(16, 26)))
"""Weights that may fit into a processor's cache."""
POWER_RIDGE = 0.5
"""How much a power other than 0 counts beside the squared errors of the logarithms: few points do not make a law."""


def fit_rest(features: Sequence[Features], measured: Sequence[float]) -> Rest:
    """The rest that makes the relative errors least: least squares, slightly drawn to scale 1 and nothing else.

    >>> large, small = Features(100.0, 0.0, 0.0, 0.0), Features(50.0, 0.0, 0.0, 0.0)
    >>> rest = fit_rest([large, small], [110.0, 60.0])
    >>> round(rest.microseconds(large)), round(rest.microseconds(small))
    (110, 60)
    """
    us = torch.tensor(measured, dtype=torch.float64)
    rows = torch.tensor(features, dtype=torch.float64)
    found = []
    for cache in CACHES:
        beyond = (rows[:, 3] - cache).clamp(min=0)
        columns = torch.stack([rows[:, 0], rows[:, 1], rows[:, 2], beyond, torch.ones_like(us)], 1)
        coefficients, error = _least_squares(columns, us)
        found.append((error, cache, coefficients))
    _, cache, values = min(found)
    names = ("scale", "per_element", "per_uneven", "per_weight", "constant")
    return Rest(cache=cache, **dict(zip(names, values, strict=True)))


def fit_power(shares: Sequence[float], ratios: Sequence[float]) -> tuple[float, float]:
    """The factor and the power, between -1 and 1, with which ratio = factor * share ** power holds best.

    >>> factor, power = fit_power([0.01, 0.1, 1.0], [0.4, 0.4, 0.4])
    >>> round(factor, 6), abs(power) < 1e-9
    (0.4, True)
    """
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (shares, ratios))
    spread = x - x.mean()
    power = float((spread @ y) / (spread @ spread + POWER_RIDGE))
    power = min(1.0, max(-1.0, power))
    return math.exp(float(y.mean()) - power * float(x.mean())), power


def _least_squares(columns: Tensor, us: Tensor) -> tuple[tuple[float, ...], float]:
    """The coefficients within their bounds and the mean squared relative error, with the ridge."""
    units = us.max() / columns.abs().amax(0).clamp(min=1e-9)  # so that one ridge fits all coefficients
    prior = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    fixed: dict[int, float] = {}
    while True:
        free = [number for number in range(len(BOUNDS)) if number not in fixed]
        found = prior.clone()
        for number, value in fixed.items():
            found[number] = value
        held = found.clone()
        held[free] = 0
        matrix = (columns * units / us.unsqueeze(1))[:, free]
        goal = 1 - (columns @ held) / us
        ridge = RIDGE * torch.eye(len(free), dtype=torch.float64)
        solved = torch.linalg.solve(matrix.T @ matrix + ridge, matrix.T @ goal + ridge @ (prior / units)[free])
        found[free] = solved * units[free]
        low, high = (torch.tensor([bound[side] for bound in BOUNDS], dtype=torch.float64) for side in (0, 1))
        clamped = found.clamp(low, high)
        outside = [number for number in free if clamped[number] != found[number]]
        if not outside:
            break
        fixed[outside[0]] = float(clamped[outside[0]])
    errors = (columns @ found) / us - 1
    penalty = RIDGE * float((((found - prior) / units) ** 2).sum())
    return tuple(found.tolist()), float((errors**2).sum()) + penalty
