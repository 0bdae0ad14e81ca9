"""The change of evidence against a direct quadrature of the Bayes factor E_q[reduced prior / prior]."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from rbprune.bayes import reduction
from tests.bayes import quadrature
from tests.bayes.test_truncated_lognormal import grid


def log_expectation(mu: Tensor, log_sigma: Tensor, log_ratio: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    """log E_q[exp log_ratio], with q integrated by a rule of its own over [a, b]."""
    everywhere, everywhere_weights = quadrature.rule(torch.full_like(mu, -20), torch.zeros_like(mu), panels=200)
    q = Normal(mu[:, None], log_sigma.exp()[:, None])
    total = torch.logsumexp(q.log_prob(everywhere) + everywhere_weights.log(), -1)
    return torch.logsumexp(q.log_prob(points) + weights.log() + log_ratio, -1) - total


def parameters() -> tuple[Tensor, Tensor]:
    mu, log_sigma = grid()
    wide = log_sigma > -2.5
    return mu[wide][::2], log_sigma[wide][::2]


@pytest.mark.parametrize("bits", [4, 8])
def test_uniform_equals_the_bayes_factor(bits: int) -> None:
    mu, log_sigma = parameters()
    end = -bits * math.log(2)
    points, weights = quadrature.rule(torch.full_like(mu, -20), torch.full_like(mu, end), panels=200)
    ratio = torch.tensor(20 / (end + 20)).double().log()  # uniform on [a, b'] over uniform on [a, b], 0 beyond b'
    reference = log_expectation(mu, log_sigma, ratio, points, weights)
    torch.testing.assert_close(reduction.delta_f_uniform(mu, log_sigma, bits), reference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.5, 5.0])
def test_normal_equals_the_bayes_factor(scale: float) -> None:
    mu, log_sigma = parameters()
    reach = 12 * scale if scale < 0.01 else 20.0
    offset, weights = quadrature.rule(torch.zeros_like(mu), torch.full_like(mu, reach))
    reduced = Normal(0.0, scale).log_prob(offset) - math.log(math.erf(20 / scale / math.sqrt(2)) / 2)
    reference = log_expectation(mu, log_sigma, reduced + math.log(20), offset - 20, weights)
    torch.testing.assert_close(reduction.delta_f_normal(mu, log_sigma, scale), reference, rtol=1e-6, atol=1e-6)


def test_a_posterior_equal_to_the_prior_says_nothing() -> None:
    flat = torch.tensor([-10.0]).double(), torch.tensor([20.0]).double()
    assert float(reduction.delta_f_uniform(*flat)) == pytest.approx(0, abs=1e-9)
    assert float(reduction.delta_f_normal(*flat)) == pytest.approx(0, abs=1e-6)


def test_a_channel_at_one_stays_and_a_channel_at_zero_goes() -> None:
    mu, log_sigma = torch.tensor([0.0, -19.5]), torch.tensor([-5.0, 0.0])
    for change in (reduction.delta_f_uniform(mu, log_sigma), reduction.delta_f_normal(mu, log_sigma)):
        assert (change >= 0).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_nan_or_infinite_anywhere(dtype: torch.dtype) -> None:
    mu, log_sigma = grid(dtype)
    for change in (reduction.delta_f_uniform(mu, log_sigma), reduction.delta_f_normal(mu, log_sigma)):
        assert change.dtype == dtype
        assert bool(torch.isfinite(change).all())
