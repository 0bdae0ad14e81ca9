"""Group horseshoe prior of Bayesian Compression (BC-GHS).

    w = w~ z,  z_i = sqrt(s_a s_b a_i b_i)      one s_a and s_b per layer, one a_i and b_i per channel
    s_a ~ Gamma(1/2, scale tau0^2)   s_b ~ IG(1/2, 1)   a_i ~ Gamma(1/2, 1)   b_i ~ IG(1/2, 1)   w~ ~ N(0, 1)
    q(each factor) = LN(mu, v)       q(z_i) = LN(mu_z, v_z),  mu_z = 1/2 sum mu,  v_z = 1/4 sum v

    KL(LN(mu, v) || Gamma(1/2, scale t)) = 1/2 log t + exp(mu + v/2) / t - 1/2 (mu + log v + 1 + log 2)
    KL(LN(mu, v) || IG(1/2, 1))          = exp(v/2 - mu) - 1/2 (-mu + log v + 1 + log 2)

A channel goes when v_z - mu_z reaches a threshold; the others fold E[z] = exp(mu_z + v_z / 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

TAU0 = 1e-5
"""Scale of the global shrinkage."""

MU_INIT = (2 * math.log(TAU0), 0.0, 0.0, -2 * math.log(TAU0))
"""Start of mu for s_a, s_b, a and b: z begins at 1, and s_a at its prior (at 0 it would cost 1e10 nats)."""

LOGVAR_INIT = -9.0
LOGVAR_MIN, LOGVAR_MAX = -20.0, 2.0
"""Log variances stay in this range."""


def kl_gamma(mu: Tensor, var: Tensor, scale: float = 1.0) -> Tensor:
    """KL(LN(mu, var) || Gamma(1/2, scale)).

    >>> kl_gamma(torch.tensor(0.0), torch.tensor(1.0))
    tensor(0.8021)
    """
    log_scale = math.log(scale)
    return torch.exp(mu + var / 2 - log_scale) + (log_scale - mu - torch.log(var) - 1 - math.log(2)) / 2


def kl_inverse_gamma(mu: Tensor, var: Tensor) -> Tensor:
    """KL(LN(mu, var) || IG(1/2, 1)): that of 1/x against a Gamma.

    >>> kl_inverse_gamma(torch.tensor(1.0), torch.tensor(1.0))
    tensor(0.2600)
    """
    return kl_gamma(-mu, var)


def kl_scales(mu: Sequence[Tensor], logvar: Sequence[Tensor]) -> Tensor:
    """KL of all scales of a layer, given for s_a, s_b, a and b.

    >>> kl_scales([torch.full((1 if i < 2 else 3,), m) for i, m in enumerate(MU_INIT)], [torch.tensor(-9.0)] * 4)
    tensor(68.7665)
    """
    s_a, s_b, a, b = ((m, v.exp()) for m, v in zip(mu, logvar, strict=True))
    shared = kl_gamma(*s_a, TAU0**2).sum() + kl_inverse_gamma(*s_b).sum()
    return shared + kl_gamma(*a).sum() + kl_inverse_gamma(*b).sum()


def kl_weights(mu: Tensor, logvar: Tensor) -> Tensor:
    """KL(N(mu, exp logvar) || N(0, 1)) per weight.

    >>> kl_weights(torch.tensor(1.0), torch.tensor(0.0))
    tensor(0.5000)
    """
    return (logvar.exp() + mu**2 - 1 - logvar) / 2


def moments(mu: Sequence[Tensor], logvar: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """mu_z and var_z of the log-normal z, from the four factors in any order.

    >>> moments([torch.tensor(m) for m in MU_INIT], [torch.tensor(0.0)] * 4)
    (tensor(0.), tensor(1.))
    """
    return sum(mu, torch.tensor(0.0)) / 2, sum((v.exp() for v in logvar), torch.tensor(0.0)) / 4


def sample(mu_z: Tensor, var_z: Tensor, xi: Tensor) -> Tensor:
    """z = exp(mu_z + sqrt(var_z) xi), differentiable in both.

    With xi of its own for every channel each z has the right distribution; that s_a and s_b are shared is left out.

    >>> sample(torch.tensor(0.0), torch.tensor(4.0), torch.tensor([0.0, 0.5]))
    tensor([1.0000, 2.7183])
    """
    return torch.exp(mu_z + torch.sqrt(var_z) * xi)


def fold(mu_z: Tensor, var_z: Tensor) -> Tensor:
    """E[z], the factor that a kept channel folds.

    >>> fold(torch.tensor(-1.0), torch.tensor(2.0))
    tensor(1.)
    """
    return torch.exp(mu_z + var_z / 2)


def redundancy(mu_z: Tensor, var_z: Tensor) -> Tensor:
    """var_z - mu_z, the larger the more redundant: minus the log of the mode of z.

    >>> redundancy(torch.tensor(-3.0), torch.tensor(0.5))
    tensor(3.5000)
    """
    return var_z - mu_z


def clamp_(logvar: Tensor) -> Tensor:
    """Clamp log variances in place to [LOGVAR_MIN, LOGVAR_MAX]."""
    with torch.no_grad():
        return logvar.clamp_(LOGVAR_MIN, LOGVAR_MAX)
