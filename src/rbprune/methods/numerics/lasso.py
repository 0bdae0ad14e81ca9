"""Lasso on a Gram matrix, and the choice of channels by it (Channel Pruning).

    min 1/2 b^T G b - c^T b + lambda ||b||_1

With G = X^T X / N and c = X^T y / N this is 1/(2N) ||y - X b||^2 + lambda ||b||_1 up to a constant.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rbprune.methods.numerics.reconstruct import check_count, solve

Floats = NDArray[np.float64]

FIRST_PENALTY = 1e-3
MAX_SWEEPS = 300
MAX_TRIALS = 60
"""Penalties tried at most, in the doubling and in the bisection each."""
TOLERANCE = 1e-10
"""A sweep that changes no gradient by more than this part of the largest |c| is the last."""


def lasso(gram: Tensor, cross: Tensor, penalty: float, start: Tensor | None = None) -> Tensor:
    """The minimiser b, by coordinate descent with jumps.

    >>> lasso(torch.eye(3), torch.tensor([2.0, -0.5, 0.1]), 0.3)
    tensor([ 1.7000, -0.2000,  0.0000], dtype=torch.float64)
    """
    g, c = (t.detach().double().cpu().numpy() for t in (gram, cross))
    beta = np.zeros(len(c)) if start is None else start.numpy().copy()
    residual = c - g @ beta
    limit = TOLERANCE * float(np.abs(c).max(initial=0))
    for _ in range(MAX_SWEEPS):
        if _sweep(g, residual, beta, penalty) <= limit:
            break
        _solve(g, c, beta, penalty)
        residual = c - g @ beta
    return torch.from_numpy(beta)


def _sweep(g: Floats, residual: Floats, beta: Floats, penalty: float) -> float:
    """One pass of coordinate descent, in place; the largest change of a gradient."""
    largest = 0.0
    for j in range(len(beta)):
        curvature = g[j, j]
        if curvature <= 0:
            beta[j] = 0.0
            continue
        pull = residual[j] + curvature * beta[j]
        new = (pull - min(max(pull, -penalty), penalty)) / curvature
        change = new - beta[j]
        if change:
            residual -= change * g[j]
            beta[j] = new
            largest = max(largest, abs(change) * curvature)
    return largest


def _solve(g: Floats, c: Floats, beta: Floats, penalty: float) -> None:
    """Go, in place, towards the minimum that the present signs allow, up to the first coefficient that reaches 0.

    Correlated channels make plain coordinate descent slow; this ends it after a few passes.
    """
    among = beta.nonzero()[0]
    part, here = g[np.ix_(among, among)], beta[among]
    try:
        step = np.linalg.solve(part, c[among] - penalty * np.sign(here)) - here
    except np.linalg.LinAlgError:
        return
    gradient = c[among] - penalty * np.sign(here) - part @ here
    if not gradient @ step > step @ part @ step / 2:
        return  # G is nearly singular, and rounding has spoilt the direction
    against = step * here < 0
    reach = float(np.min(-here[against] / step[against], initial=1.0))
    moved = here + reach * step
    moved[moved * here <= 0] = 0.0
    beta[among] = moved


def select(gram: Tensor, cross: Tensor, count: int) -> Tensor:
    """The ``count`` channels to keep, in ascending order.

    The penalty is doubled until at most ``count`` coefficients are left, then bisected until just as many are. If no
    penalty does that (channels may be equal, or zero), those of the largest |b| under the last penalty that kept enough
    of them are taken.

    >>> select(torch.eye(3), torch.tensor([2.0, -0.5, 0.1]), 2)
    tensor([0, 1])
    """
    check_count(count, len(gram))
    low, high = 0.0, FIRST_PENALTY
    beta = solve(gram.detach().double().cpu(), cross.detach().double().cpu())  # a small penalty ends near by
    enough: Tensor | None = None
    for _ in range(MAX_TRIALS):
        beta = lasso(gram, cross, high, beta)
        if int(beta.count_nonzero()) <= count:
            break
        low, high, enough = high, 2 * high, beta
    smallest = 1e-9 * float(cross.abs().max()) if len(cross) else 0.0
    for _ in range(MAX_TRIALS):
        if int(beta.count_nonzero()) == count or high - low <= 1e-9 * high or high <= smallest:
            break
        middle = (low + high) / 2
        beta = lasso(gram, cross, middle, beta)
        if int(beta.count_nonzero()) < count:
            high = middle
        else:
            low, enough = middle, beta
    if int(beta.count_nonzero()) != count and enough is not None:
        beta = enough
    return torch.sort(beta.abs().argsort(descending=True, stable=True)[:count]).values
