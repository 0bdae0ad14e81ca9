"""Gauss-Legendre quadrature in float64, independent of the formulas under test."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

NODES, WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(48))


def rule(low: Tensor, high: Tensor, panels: int = 40) -> tuple[Tensor, Tensor]:
    """Points and weights on [low, high], along a new last dimension."""
    edges = torch.linspace(0, 1, panels + 1, dtype=torch.float64)
    half = edges.diff()[:, None] / 2
    unit = (edges[:-1, None] + half * (NODES + 1)).flatten()
    return low[..., None] + (high - low)[..., None] * unit, (high - low)[..., None] * (half * WEIGHTS).flatten()


def restricted_normal(mu: Tensor, sigma: Tensor, low: float, high: float) -> tuple[Tensor, Tensor, Tensor]:
    """Points of a normal restricted to [low, high], their probabilities, and the log of the integral over its peak.

    Points are offsets from ``mu.clamp(low, high)``; the window holds all but exp(-50) of the mass.
    """
    peak = mu.clamp(low, high)
    gap = (mu - peak).abs()
    reach = torch.minimum(10 * sigma, 50 * sigma**2 / gap.clamp(min=1e-300))
    points, weights = rule(torch.maximum(-reach, low - peak), torch.minimum(reach, high - peak))
    density = torch.exp(-points * (points - 2 * (mu - peak)[..., None]) / (2 * sigma[..., None] ** 2))
    mass = density * weights
    total = mass.sum(-1, keepdim=True)
    return points, mass / total, total.squeeze(-1).log()
