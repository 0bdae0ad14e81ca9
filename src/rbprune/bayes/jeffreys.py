"""Group normal-Jeffreys prior of Bayesian Compression (BC-GNJ).

    q(z) = N(mu, mu^2 alpha)          log alpha = logvar - log mu^2
    p(z) ~ 1 / |z|                    log-uniform, the marginal of a normal under Jeffreys' prior of its variance
    KL(q||p) ~ k1 - k1 sigmoid(k2 + k3 log alpha) + 1/2 softplus(-log alpha)

The exact KL is E[log |1 + sqrt(alpha) xi|] - 1/2 log alpha + const with xi ~ N(0, 1); the prior is improper, and the
constant (gamma + log 2) / 2 makes it vanish as alpha grows. The fit of Molchanov et al. (2017) is within 0.01 of that.
A channel stays when log alpha is below a threshold, and folds E[z] = mu.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

K1, K2, K3 = 0.63576, 1.87320, 1.48695

MU_INIT, LOGVAR_INIT, INIT_SD = 1.0, -9.0, 0.01
"""mu and logvar start as draws from normals around these, with this standard deviation."""

THRESHOLD = -3.0
"""log alpha from which on a channel goes; the method picks it from the gap in the sorted values."""


def log_alpha(mu: Tensor, logvar: Tensor) -> Tensor:
    """Log of the noise-to-signal power of z.

    >>> log_alpha(torch.tensor([1.0, 0.0]), torch.tensor(-9.0)).round(decimals=4)
    tensor([-9.0000,  9.4207])
    """
    return logvar - torch.log(mu**2 + 1e-8)


def kl(log_alpha: Tensor) -> Tensor:
    """KL(q||p) per channel, up to the constant that makes it 0 for pure noise.

    >>> kl(torch.tensor([-9.0, 0.0, 50.0])).round(decimals=4)
    tensor([5.1358, 0.4312, 0.0000])
    """
    return K1 * torch.sigmoid(-(K2 + K3 * log_alpha)) + F.softplus(-log_alpha) / 2


def sample(mu: Tensor, logvar: Tensor, xi: Tensor) -> Tensor:
    """z = mu + exp(logvar / 2) xi, differentiable in both.

    >>> sample(torch.tensor(1.0), torch.tensor(0.0), torch.tensor([-1.0, 1.0]))
    tensor([0., 2.])
    """
    return mu + torch.exp(logvar / 2) * xi


def fold(mu: Tensor) -> Tensor:
    """E[z], the factor that a kept channel folds into its weights and bias."""
    return mu
