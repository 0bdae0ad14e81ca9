"""Bayesian model reduction with truncated log-normal noise (BMRS).

The change of evidence when the prior p is exchanged for a reduced prior p~ that pins a channel near 0 is known from the
posterior q alone, dF = log E_q[p~ / p], and a channel goes when dF >= 0. With q, p, a, b and Z as in
``truncated_lognormal``:

    BMRS_U   p~ = uniform on [a, b'], b' = -bits log 2
             dF = log q(log theta <= b') - log((b' - a) / (b - a))
    BMRS_N   p~ = N(a, s^2) restricted to [a, b]
             dF = log((b - a) Z_q~ / (Z_q Z_p~)) + log N(mu - a; 0, sigma^2 + s^2),  q~ the product of both normals

The public code of the method leaves the constant -1/2 log(2 pi) out of the second, and in the first starts both
intervals at -23 log 2 and moves mu into [a, b] beforehand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rbprune.bayes.truncated_lognormal import HIGH, LOW, log_normaliser

BITS = 8
SCALE = 1e-6
"""s, the width of the spike."""


def delta_f_uniform(mu: Tensor, log_sigma: Tensor, bits: float = BITS) -> Tensor:
    """dF of BMRS_U: is theta below 2^-bits oftener than under the prior?

    >>> delta_f_uniform(torch.tensor([0.0, -9.0]), torch.tensor([-2.0, 0.0]))
    tensor([-8.4303e+02,  3.2443e-01])
    """
    end = -bits * math.log(2)
    mu64, log_sigma64 = mu.double(), log_sigma.double()
    share = log_normaliser(mu64, log_sigma64, LOW, end) - log_normaliser(mu64, log_sigma64)
    return (share - math.log((end - LOW) / (HIGH - LOW))).to(mu.dtype)


def delta_f_normal(mu: Tensor, log_sigma: Tensor, scale: float = SCALE) -> Tensor:
    """dF of BMRS_N: the density of q at a, against that of the prior.

    >>> delta_f_normal(torch.tensor([0.0, -19.0]), torch.tensor([-2.0, 0.0]))
    tensor([-1.0915e+04,  1.7495e+00])
    """
    width = HIGH - LOW
    above, variance = mu.double() - LOW, torch.exp(2 * log_sigma.double())  # all that follows is measured from a
    total = variance + scale**2
    product = above * scale**2 / total
    log_product_scale = log_sigma.double() + math.log(scale) - torch.log(total) / 2
    spike = log_normaliser(torch.zeros_like(above), torch.full_like(above, math.log(scale)), 0.0, width)
    posterior = log_normaliser(above, log_sigma.double(), 0.0, width)
    reduced = log_normaliser(product, log_product_scale, 0.0, width)
    density = -(above**2) / (2 * total) - torch.log(2 * math.pi * total) / 2
    return (math.log(width) + reduced - posterior - spike + density).to(mu.dtype)
