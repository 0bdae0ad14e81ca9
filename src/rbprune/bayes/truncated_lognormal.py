"""Truncated log-normal channel noise with a log-uniform prior (Structured Bayesian Pruning).

    q(log theta) = N(mu, sigma^2) restricted to [a, b] = [-20, 0]
    p(log theta) = uniform on [a, b]
    KL(q||p) = log (b - a) - log sigma - log Z - 1/2 log(2 pi e) - (A phi(A) - B phi(B)) / (2 Z)
    A = (a - mu) / sigma, B = (b - mu) / sigma, Z = Phi(B) - Phi(A)

A channel stays when its signal-to-noise ratio E[theta] / sd[theta] exceeds 1, and folds E[theta]. The printed forms
fail once |B| is large, so every number here comes from ``restricted_normal`` in float64 and is returned in the dtype of
``mu``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rbprune.bayes import restricted_normal

LOW, HIGH = -20.0, 0.0
"""a and b."""
MU_INIT, LOG_SIGMA_INIT = 0.0, -5.0
PARAMETER_MIN, PARAMETER_MAX = -20.0, 5.0
"""mu and log sigma stay in this range."""
SMALL = 1e-3
"""Below this standard deviation of log theta the difference of two log moments is mostly rounding."""


def log_normaliser(mu: Tensor, log_sigma: Tensor, low: float = LOW, high: float = HIGH) -> Tensor:
    """log Z, the log probability that N(mu, sigma^2) falls in [low, high].

    >>> log_normaliser(torch.tensor([0.0, 5.0]), torch.tensor([-5.0, -5.0]))
    tensor([-6.9315e-01, -2.7534e+05])
    """
    x, w = _frame(mu, log_sigma.double().exp(), low, high)
    log_mass, _, _ = restricted_normal.stats(x, w)
    return (log_mass - x.clamp(min=0) ** 2 / 2 - math.log(2 * math.pi) / 2).to(mu.dtype)


def kl(mu: Tensor, log_sigma: Tensor) -> Tensor:
    """KL(q||p) per channel.

    >>> kl(torch.tensor([0.0, -10.0]), torch.tensor([-5.0, 5.0])).round(decimals=2)
    tensor([7.2700, 0.0000])
    """
    x, w = _frame(mu, log_sigma.double().exp())
    log_mass, energy, _ = restricted_normal.stats(x, w)
    return (torch.log(w) - log_mass - energy).to(mu.dtype)


def sample(mu: Tensor, log_sigma: Tensor, u: Tensor) -> Tensor:
    """theta whose cumulative probability is u in [0, 1], differentiable in mu and log sigma.

    >>> sample(torch.tensor(-1.0), torch.tensor(-1.0), torch.tensor([0.0, 0.5, 1.0]))
    tensor([0.0179, 0.3673, 1.0000])
    """
    sigma, centre = log_sigma.double().exp(), mu.double()
    x, w = _frame(centre, sigma)
    flipped = centre < (LOW + HIGH) / 2
    offset = restricted_normal.quantile(x, w, torch.where(flipped, u.double(), 1 - u.double()))
    peak = centre.clamp(LOW, HIGH)
    log_theta = peak + torch.where(flipped, sigma, -sigma) * offset
    return torch.exp(log_theta.clamp(LOW, HIGH)).to(mu.dtype)


def log_moment(mu: Tensor, log_sigma: Tensor, k: int) -> Tensor:
    """log E[theta^k].

    >>> log_moment(torch.tensor(-5.0), torch.tensor(-2.0), 2)  # far from both ends: k mu + k^2 sigma^2 / 2
    tensor(-9.9634)
    """
    return _log_moment(mu.double(), log_sigma.double().exp(), k).to(mu.dtype)


def _log_moment(mu: Tensor, sigma: Tensor, k: int) -> Tensor:
    """The integrand exp(k l) N(l; mu, sigma^2) is a normal around mu + k sigma^2; its peak is taken apart exactly."""
    x, w = _frame(mu, sigma, tilt=k)
    end = torch.where(mu + k * sigma**2 > (LOW + HIGH) / 2, HIGH, LOW)
    excess = (mu - mu.clamp(LOW, HIGH)) ** 2
    at_centre = k * mu + k**2 * sigma**2 / 2 + excess / (2 * sigma**2)
    at_end = k * end + (excess - (mu - end) ** 2) / (2 * sigma**2)
    mass, _, _ = restricted_normal.stats(*_frame(mu, sigma))
    moved, _, _ = restricted_normal.stats(x, w)
    return torch.where(x > 0, at_end, at_centre) + moved - mass


def mean(mu: Tensor, log_sigma: Tensor) -> Tensor:
    """E[theta], the factor that a kept channel folds.

    >>> mean(torch.tensor([0.0, -20.0]), torch.tensor([-5.0, 5.0]))
    tensor([0.9946, 0.0497])
    """
    return torch.exp(log_moment(mu, log_sigma, 1))


def snr(mu: Tensor, log_sigma: Tensor) -> Tensor:
    """E[theta] / sd[theta] = expm1(log E[theta^2] - 2 log E[theta])^(-1/2).

    That difference is the variance of log theta, averaged over tilts exp(s log theta) with s around 1, which is what
    we use when it is small.

    >>> snr(torch.tensor([0.0, -20.0, 5.0]), torch.tensor([-5.0, 5.0, -20.0]))
    tensor([2.4670e+02, 3.3245e-01, 1.1769e+18])
    """
    centre, sigma = mu.double(), log_sigma.double().exp()
    _, _, variance = restricted_normal.stats(*_frame(centre, sigma, tilt=1))
    spread = sigma**2 * variance
    direct = _log_moment(centre, sigma, 2) - 2 * _log_moment(centre, sigma, 1)
    gap = torch.where(spread < SMALL**2, spread, direct.clamp(min=SMALL**2 / 2))
    return torch.expm1(gap).rsqrt().to(mu.dtype)


def clamp_(parameter: Tensor) -> Tensor:
    """Clamp mu or log sigma in place to [PARAMETER_MIN, PARAMETER_MAX]."""
    with torch.no_grad():
        return parameter.clamp_(PARAMETER_MIN, PARAMETER_MAX)


def _frame(mu: Tensor, sigma: Tensor, low: float = LOW, high: float = HIGH, tilt: int = 0) -> tuple[Tensor, Tensor]:
    """x and w of ``restricted_normal`` for a normal around mu + tilt sigma^2, whose last digits a sum would lose."""
    left, right = (low - mu.double()) / sigma, (mu.double() - high) / sigma
    return torch.maximum(left - tilt * sigma, right + tilt * sigma), (high - low) / sigma
