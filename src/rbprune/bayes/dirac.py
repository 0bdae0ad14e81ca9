"""Gaussian channel noise with the Dirac-like prior of Recursive Bayesian Pruning.

    q(theta) = N(1 - r, r (1 - r))        channel noise, r the redundancy ("rate") of the channel
    p(theta) = N(0, eps^2)                Dirac-like prior
    KL(q||p) = -1/2 log(r (1 - r) / eps^2) + (1 - r) / (2 eps^2) - 1/2       (paper, eq. kl-divergence)

For a locally quadratic loss a channel ends near r = 1 exactly when removing it costs less than 1 / (2 eps^2) nats over
the whole training set, so eps^2 is a price and we let the user speak in nats.
"""

from __future__ import annotations

import torch
from torch import Tensor

RATE_MIN = 1e-4
"""Rates stay in [RATE_MIN, 1 - RATE_MIN]: d theta / d r grows without bound at both ends."""

RATE_INIT = 0.01
"""Where the paper starts every rate."""


def eps2_from_nats(nats: Tensor) -> Tensor:
    """Variance of the prior under which a channel must bring ``nats`` of evidence to stay.

    >>> eps2_from_nats(torch.tensor(20.0))
    tensor(0.0250)
    """
    return 1 / (2 * nats)


def kl(rate: Tensor, eps2: Tensor | float) -> Tensor:
    """KL(N(1 - r, r (1 - r)) || N(0, eps^2)) per channel.

    The second moment of q is (1 - r)^2 + r (1 - r) = 1 - r, hence the middle term.

    >>> kl(torch.tensor([0.01, 0.9]), 0.025).round(decimals=3)
    tensor([19.7630,  0.8600])
    """
    return -0.5 * torch.log(rate * (1 - rate) / eps2) + (1 - rate) / (2 * eps2) - 0.5


def optimal_rate(eps2: Tensor) -> Tensor:
    """The rate that minimises the KL alone: the root in (0, 1) of r^2 + (2 eps^2 - 1) r - eps^2 = 0.

    The paper prints this formula with eps^2 doubled (1 - 4 eps^2 + sqrt(1 + 16 eps^4)) / 2, which is 0.9525 at
    eps^2 = 0.025 and not a stationary point of its own KL; the exact optimum there is 0.9756.

    >>> optimal_rate(torch.tensor(0.025))
    tensor(0.9756)
    """
    return (1 - 2 * eps2 + torch.sqrt(1 + 4 * eps2**2)) / 2


def stationary_rate(curvature: Tensor, eps2: Tensor) -> Tensor:
    """The optimal rate when the data resists with a given curvature A of the total loss in theta.

    For a loss A/2 (theta - 1)^2 summed over the data, E_q[loss] = A r / 2; with B = A - 1 / eps^2 the objective is
    stationary at r = ((B + 2) - sqrt(B^2 + 4)) / (2 B), near 0 for B >> 0 and near 1 for B << 0: the decision falls at
    A / 2 = 1 / (2 eps^2), the price.

    >>> stationary_rate(torch.tensor([0.0, 400.0]), torch.tensor(0.025)).round(decimals=4)
    tensor([0.9756, 0.0028])
    """
    b = curvature - 1 / eps2
    # 2 / (B + 2 + sqrt(B^2 + 4)) is the same number without cancellation, and 1/2 at B = 0
    return 2 / (b + 2 + torch.sqrt(b**2 + 4))


def resistance(rate: Tensor, eps2: Tensor) -> Tensor:
    """The curvature A = 1 / eps^2 + (1 - 2 r) / (r (1 - r)) at which a rate is stationary.

    >>> resistance(stationary_rate(torch.tensor([7.0, 400.0]), torch.tensor(0.025)), torch.tensor(0.025)).round()
    tensor([  7., 400.])
    """
    return 1 / eps2 + (1 - 2 * rate) / (rate * (1 - rate))


def sample(rate: Tensor, xi: Tensor) -> Tensor:
    """theta = 1 - r + sqrt(r (1 - r)) xi, differentiable in r (paper, eq. sample).

    >>> sample(torch.tensor([0.5]), torch.tensor([[1.0], [-1.0]]))
    tensor([[1.],
            [0.]])
    """
    return (1 - rate) + torch.sqrt(rate * (1 - rate)) * xi


def clamp_(rate: Tensor) -> Tensor:
    """Clamp rates in place to [RATE_MIN, 1 - RATE_MIN]."""
    with torch.no_grad():
        return rate.clamp_(RATE_MIN, 1 - RATE_MIN)
