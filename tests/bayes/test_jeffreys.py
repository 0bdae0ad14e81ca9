"""The normal-Jeffreys prior against the exact KL of a log-uniform prior."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rbprune.bayes import jeffreys

EULER = 0.5772156649015329


def exact_kl(log_alpha: Tensor) -> Tensor:
    """(gamma + log 2) / 2 + E log|1 + sqrt(alpha) xi| - 1/2 log alpha, by quadrature.

    With y = 1 + sqrt(alpha) xi = +-exp(s) the singularity of the log is gone: the trapezoid in s converges fast.
    """
    sigma = torch.exp(log_alpha / 2)[:, None]
    s = torch.linspace(-60, 20, 400_001, dtype=torch.float64)
    y = s.exp()
    density = (
        sum(torch.exp(-((sign * y - 1) ** 2) / (2 * sigma**2)) for sign in (1, -1)) / sigma / math.sqrt(2 * math.pi)
    )
    mean_log = torch.trapezoid(density * y * s, s, dim=-1)
    return (EULER + math.log(2)) / 2 + mean_log - log_alpha / 2


def test_the_exact_kl_of_these_tests_equals_monte_carlo() -> None:
    log_alpha = torch.tensor([-4.0, -1.0, 0.0, 3.0]).double()
    draws = (1 + torch.exp(log_alpha / 2) * torch.randn(1_000_000, 4).double()).abs().log()
    monte_carlo = (EULER + math.log(2)) / 2 + draws.mean(0) - log_alpha / 2
    torch.testing.assert_close(exact_kl(log_alpha), monte_carlo, atol=6e-3, rtol=0)


def test_kl_is_near_the_exact_one_everywhere() -> None:
    log_alpha = torch.linspace(-8, 8, 65).double()
    error = jeffreys.kl(log_alpha) - exact_kl(log_alpha)
    assert 1e-4 < float(error.abs().max()) < 0.01


def test_kl_equals_the_printed_form() -> None:
    x = torch.linspace(-8, 8, 33).double()
    k1, k2, k3 = 0.63576, 1.87320, 1.48695
    printed = k1 - k1 * torch.sigmoid(k2 + k3 * x) + 0.5 * torch.log1p(torch.exp(-x))
    torch.testing.assert_close(jeffreys.kl(x), printed)


def test_kl_at_the_limits() -> None:
    """Pure noise is free; a sharp z costs half a nat per unit of log alpha."""
    assert float(jeffreys.kl(torch.tensor(200.0))) == 0
    sharp = torch.tensor(-200.0, dtype=torch.float64)
    assert float(jeffreys.kl(sharp)) == pytest.approx(100 + jeffreys.K1)
    assert pytest.approx((EULER + math.log(2)) / 2, abs=1e-3) == jeffreys.K1
    grid = torch.linspace(-20, 20, 4001).double()
    assert bool((jeffreys.kl(grid).diff() < 0).all())


def test_kl_has_finite_gradients_also_at_a_z_of_zero() -> None:
    mu = torch.tensor([0.0, 1e-6, 1.0], requires_grad=True)
    logvar = torch.tensor([-20.0, -9.0, 2.0], requires_grad=True)
    jeffreys.kl(jeffreys.log_alpha(mu, logvar)).sum().backward()
    for parameter in (mu, logvar):
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())


def test_gradients_match_finite_differences() -> None:
    mu = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    logvar = torch.tensor([-3.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    xi = torch.randn(4, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda m, v: jeffreys.kl(jeffreys.log_alpha(m, v)), (mu, logvar))
    assert torch.autograd.gradcheck(lambda m, v: jeffreys.sample(m, v, xi), (mu, logvar))


def test_samples_have_the_moments_of_the_noise() -> None:
    mu, logvar = torch.tensor([1.0, -0.5]), torch.tensor([-2.0, 0.5])
    z = jeffreys.sample(mu, logvar, torch.randn(200_000, 2))
    torch.testing.assert_close(z.mean(0), jeffreys.fold(mu), atol=0.015, rtol=0)
    torch.testing.assert_close(z.var(0), logvar.exp(), rtol=0.02, atol=0)
    torch.testing.assert_close(jeffreys.log_alpha(mu, logvar), torch.log(z.var(0) / z.mean(0) ** 2), atol=0.1, rtol=0)
