"""The truncated log-normal against quadrature, over all of the range that its parameters may take."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from rbprune.bayes import truncated_lognormal as tln
from tests.bayes import quadrature

Function = Callable[[Tensor, Tensor], Tensor]
U = torch.tensor([0.0, 1e-7, 0.01, 0.5, 0.99, 1 - 6e-8, 1.0], dtype=torch.float64)


def grid(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Every corner of the range, and the neighbourhood of both ends and of the middle of the interval."""
    near = torch.tensor([1e-9, 1e-6, 1e-3, 0.1], dtype=torch.float64)
    mu = torch.cat([torch.linspace(-20, 5, 51).double(), -near, near, -20 + near, -10 + near, -10 - near])
    mu, log_sigma = torch.meshgrid(mu, torch.linspace(-20, 5, 51).double(), indexing="ij")
    return mu.flatten().to(dtype), log_sigma.flatten().to(dtype)


def test_log_normaliser_equals_quadrature() -> None:
    mu, log_sigma = grid()
    for low, high in [(-20.0, 0.0), (-20.0, -8 * math.log(2)), (0.0, 20.0)]:
        _, _, over_peak = quadrature.restricted_normal(mu, log_sigma.exp(), low, high)
        at_peak = torch.distributions.Normal(mu, log_sigma.exp()).log_prob(mu.clamp(low, high))
        reference = over_peak + at_peak
        torch.testing.assert_close(tln.log_normaliser(mu, log_sigma, low, high), reference, rtol=1e-10, atol=1e-10)


def test_log_normaliser_equals_the_printed_formula_where_that_works() -> None:
    mu, log_sigma = torch.tensor([-10.0, -1.0, 0.0, 0.5]).double(), torch.tensor([0.0, 1.0, -1.0, -1.0]).double()
    phi = torch.distributions.Normal(mu, log_sigma.exp()).cdf
    reference = (phi(torch.zeros_like(mu)) - phi(torch.full_like(mu, -20))).log()
    torch.testing.assert_close(tln.log_normaliser(mu, log_sigma), reference)


def test_kl_equals_quadrature() -> None:
    mu, log_sigma = grid()
    points, mass, over_peak = quadrature.restricted_normal(mu, log_sigma.exp(), -20, 0)
    outside = (mu - mu.clamp(-20, 0))[:, None]
    energy = points * (points - 2 * outside) / (2 * log_sigma.exp()[:, None] ** 2)
    reference = math.log(20) - over_peak - (mass * energy).sum(-1)
    torch.testing.assert_close(tln.kl(mu, log_sigma), reference, rtol=1e-9, atol=1e-9)


def test_kl_at_the_start_is_that_of_the_method() -> None:
    start = tln.kl(torch.tensor(tln.MU_INIT).double(), torch.tensor(tln.LOG_SIGMA_INIT).double())
    assert float(start) == pytest.approx(7.27, abs=5e-3)
    # half a normal of sd exp(-5) against a uniform on 20
    assert float(start) == pytest.approx(math.log(20) + 5 + math.log(2) - math.log(2 * math.pi * math.e) / 2)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_log_moments_equal_quadrature(k: int) -> None:
    mu, log_sigma = grid()
    keep = log_sigma > -4
    mu, log_sigma = mu[keep][::3], log_sigma[keep][::3]
    sigma = log_sigma.exp()
    # theta^k moves the mass by k sigma^2, so the rule covers all of [a, b]
    points, weights = quadrature.rule(torch.full_like(mu, -20), torch.zeros_like(mu), panels=300)
    exponent = -((points - mu[:, None]) ** 2) / (2 * sigma[:, None] ** 2)
    log_q = exponent + weights.log()
    reference = torch.logsumexp(log_q + k * points, -1) - torch.logsumexp(log_q, -1)
    torch.testing.assert_close(tln.log_moment(mu, log_sigma, k), reference, rtol=1e-9, atol=1e-9)


def test_mean_equals_quadrature_on_the_whole_grid() -> None:
    mu, log_sigma = grid()
    small = log_sigma < 0
    mu, log_sigma = mu[small], log_sigma[small]
    points, mass, _ = quadrature.restricted_normal(mu, log_sigma.exp(), -20, 0)
    reference = (mass * (points + mu.clamp(-20, 0)[:, None]).exp()).sum(-1)
    torch.testing.assert_close(tln.mean(mu, log_sigma), reference, rtol=1e-9, atol=0)


def test_snr_equals_quadrature_on_the_whole_grid() -> None:
    mu, log_sigma = grid()
    points, mass, _ = quadrature.restricted_normal(mu, log_sigma.exp(), -20, 0)
    mean = (mass * points.expm1()).sum(-1, keepdim=True)  # theta / exp(peak) - 1: no cancellation when sigma is tiny
    variance = (mass * (points.expm1() - mean) ** 2).sum(-1)
    reference = (1 + mean.squeeze(-1)) / variance.sqrt()
    torch.testing.assert_close(tln.snr(mu, log_sigma), reference, rtol=1e-6, atol=0)


def test_samples_have_the_cumulative_probability_asked_for() -> None:
    mu, log_sigma = (p[:, None] for p in grid())
    u = torch.tensor([1e-7, 0.01, 0.3, 0.5, 0.99, 1 - 6e-8], dtype=torch.float64)
    theta = tln.sample(mu, log_sigma, u)
    rows = (tln.snr(mu, log_sigma) < 1e6).nonzero()[::37, 0]  # beyond, theta is too close to its mean to be stored
    for row in rows.tolist():
        total = tln.log_normaliser(mu[row], log_sigma[row])
        for probability, value in zip(u.tolist(), theta[row].log().tolist(), strict=True):
            part = tln.log_normaliser(mu[row], log_sigma[row], -20.0, value)
            assert float((part - total).exp()) == pytest.approx(probability, abs=1e-6)


def test_samples_rise_with_u_and_stay_in_the_interval() -> None:
    mu, log_sigma = (p[:, None] for p in grid())
    theta = tln.sample(mu, log_sigma, U)
    assert bool((theta.diff(dim=-1) >= 0).all())
    assert bool((theta >= math.exp(-20)).all())
    assert bool((theta <= 1).all())


def test_samples_have_the_mean_of_the_noise() -> None:
    mu, log_sigma = torch.tensor([0.0, -3.0, 2.0, -10.0]), torch.tensor([-1.0, 0.5, 0.0, 3.0])
    theta = tln.sample(mu, log_sigma, torch.rand(100_000, 4))
    assert theta.dtype == torch.float32
    torch.testing.assert_close(theta.mean(0), tln.mean(mu, log_sigma), atol=5e-3, rtol=0)
    torch.testing.assert_close(theta.mean(0) / theta.std(0), tln.snr(mu, log_sigma), rtol=2e-2, atol=0)


FUNCTIONS: dict[str, Function] = {
    "kl": tln.kl,
    "log_normaliser": tln.log_normaliser,
    "mean": tln.mean,
    "log_moment": lambda m, s: tln.log_moment(m, s, 2),
    "snr": tln.snr,
    "sample": lambda m, s: tln.sample(m[:, None], s[:, None], U),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_nan_or_infinite_anywhere(name: str, dtype: torch.dtype) -> None:
    mu, log_sigma = (p.requires_grad_() for p in grid(dtype))
    value = FUNCTIONS[name](mu, log_sigma)
    assert value.dtype == dtype
    value.sum().backward()
    for tensor in (value, mu.grad, log_sigma.grad):
        assert tensor is not None
        assert bool(torch.isfinite(tensor).all())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_match_finite_differences(name: str) -> None:
    mu = torch.tensor([-19.9, -12.0, -3.0, -0.1, 0.3, 2.0, 4.9], dtype=torch.float64, requires_grad=True)
    for value in (-3.0, -1.0, 0.5, 4.0):
        log_sigma = torch.full_like(mu, value).detach().requires_grad_()
        assert gradcheck(FUNCTIONS[name], (mu, log_sigma), eps=1e-6, rtol=1e-3, atol=1e-5)


def test_far_outside_the_kl_is_that_of_an_exponential() -> None:
    mu, log_sigma = torch.tensor([5.0, 1.0]).double(), torch.tensor([-20.0, -9.0]).double()
    rate = (mu / log_sigma.exp() ** 2).requires_grad_(False)
    torch.testing.assert_close(tln.kl(mu, log_sigma), math.log(20) + rate.log() - 1, rtol=1e-6, atol=0)
    mu.requires_grad_()
    (slope,) = torch.autograd.grad(tln.kl(mu, log_sigma).sum(), mu)
    torch.testing.assert_close(slope, 1 / mu.detach(), rtol=1e-5, atol=0)


def test_parameters_are_clamped_in_place() -> None:
    parameter = torch.tensor([-30.0, 1.0, 9.0], requires_grad=True)
    tln.clamp_(parameter)
    assert parameter.tolist() == [-20.0, 1.0, 5.0]
