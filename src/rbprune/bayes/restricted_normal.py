"""A standard normal restricted to an interval, at any distance from it, without cancellation.

Coordinate t runs from 0, the end of the interval that is nearer to the centre of the normal, to w, the other end. The
centre lies at t = -x: outside when x > 0, inside when -w/2 <= x <= 0. The density is proportional to

    exp(-t x - t^2 / 2)        0 <= t <= w

and we always divide by its peak (at t = 0, or at the centre when that is inside), so nothing overflows. Outside, all
rests on m_n(x) = int_0^inf t^n exp(-t x - t^2/2) dt with m_0 Mills' ratio; m_1 = 1 - x m_0 and m_2 = m_0 - x m_1 cancel
for large x, so there we use m_n = sum_k (-1)^k (n + 2k)! / (2^k k!) x^-(n + 2k + 1). Everything is float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FAR = 30.0
"""Beyond this the first TERMS terms of the series are exact to rounding."""
TERMS = 10
NEWTON_STEPS = 3
"""One more step of Newton's method carries gradients: then t is exact to rounding."""


def mills(x: Tensor) -> Tensor:
    """m_0 for x >= 0.

    >>> mills(torch.tensor([0.0, 1e9], dtype=torch.float64))
    tensor([1.2533e+00, 1.0000e-09], dtype=torch.float64)
    """
    near = math.sqrt(math.pi / 2) * torch.special.erfcx(x.clamp(max=FAR) / math.sqrt(2))
    return torch.where(x > FAR, _series(x.clamp(min=FAR), 0), near)


def _moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    near, far, m0 = x.clamp(max=FAR), x.clamp(min=FAR), mills(x)
    m1 = torch.where(x > FAR, _series(far, 1), 1 - near * m0)
    return m0, m1, torch.where(x > FAR, _series(far, 2), m0 - near * m1)


def _series(x: Tensor, n: int) -> Tensor:
    inverse = 1 / x
    square, total = inverse**2, torch.zeros_like(x)
    for k in reversed(range(TERMS)):
        total = total * square + (-1) ** k * math.factorial(n + 2 * k) / (2**k * math.factorial(k))
    return total * inverse ** (n + 1)


def stats(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log of the integral relative to the peak, mean excess energy (-log density below the peak), variance of t.

    >>> zero, far = torch.zeros((), dtype=torch.float64), torch.tensor(100.0, dtype=torch.float64)
    >>> [round(float(v), 4) for v in stats(zero, far)]  # half a normal: log sqrt(pi/2), 1/2, 1 - 2/pi
    [0.2258, 0.5, 0.3634]
    >>> [round(float(v), 4) for v in stats(far, far)]  # nearly an exponential of rate x: -log x, 1, x^-2
    [-4.6053, 0.9999, 0.0001]
    """
    inside, outside = _inside(x.clamp(max=0), w), _outside(x.clamp(min=0), w)
    return tuple(torch.where(x > 0, o, i) for o, i in zip(outside, inside, strict=True))  # type: ignore[return-value]


def _inside(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    total = math.sqrt(math.pi / 2) * (torch.erf((x + w) / math.sqrt(2)) - torch.erf(x / math.sqrt(2)))
    near, far = torch.exp(-(x**2) / 2), torch.exp(-((x + w) ** 2) / 2)
    mean = (near - far) / total
    square = 1 + (x * near - (x + w) * far) / total
    return torch.log(total), square / 2, square - mean**2


def _outside(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m0, m1, m2 = _moments(x)
    r0, r1, r2 = _moments(x + w)
    cut = torch.exp(-w * (x + w / 2))
    total = m0 - cut * r0
    mean = (m1 - cut * (r1 + w * r0)) / total
    square = (m2 - cut * (r2 + 2 * w * r1 + w**2 * r0)) / total
    return torch.log(total), x * mean + square / 2, square - mean**2


def quantile(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Where the mass below is v: as t when the centre is outside, as t + x (from the centre) when it is inside.

    Differentiable in x and w.

    >>> half = torch.tensor(0.5, dtype=torch.float64)
    >>> quantile(torch.tensor([0.0, 1e6]).double(), torch.tensor(1e9).double(), half)
    tensor([6.7449e-01, 6.9315e-07], dtype=torch.float64)
    """
    v = v.clamp(2**-53, 1 - 2**-53)
    if not bool((x > 0).any()):
        return _centre(x, w, v)
    return torch.where(x > 0, _tail(x.clamp(min=0), w, v), _centre(x.clamp(max=0), w, v))


def _centre(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    mass = (torch.erf((x + w) / math.sqrt(2)) - torch.erf(x / math.sqrt(2))) / 2
    below = torch.special.erfc(-x / math.sqrt(2)) / 2 + v * mass
    above = torch.special.erfc((x + w) / math.sqrt(2)) / 2 + (1 - v) * mass
    low = below < above
    return torch.special.ndtri(torch.where(low, below, above)) * torch.where(low, 1.0, -1.0)


def _tail(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Root of the concave log survival function by Newton's method from above, which cannot overshoot.

    The last step alone carries gradients: with the slope held fixed it is the implicit function theorem.
    """
    start = mills(x)
    kept = 1 - torch.exp(-w * (x + w / 2)) * mills(x + w) / start
    height = -torch.log1p(-v * kept)

    def step(t: Tensor) -> Tensor:
        m = mills(x + t)
        return t + m.detach() * (height - t * (x + t / 2) + torch.log(m / start))

    with torch.no_grad():
        t = 2 * height / (x + torch.sqrt(x**2 + 2 * height))
        for _ in range(NEWTON_STEPS):
            t = step(t)
    return step(t)
