"""The maths of the noise against independent computations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from rbprune.bayes import dirac

RATES = st.floats(1e-4, 1 - 1e-4)
EPS2 = st.floats(1e-5, 0.5)


@given(rate=RATES, eps2=EPS2)
def test_kl_equals_torch_distributions(rate: float, eps2: float) -> None:
    r, e = torch.tensor([rate], dtype=torch.float64), torch.tensor([eps2], dtype=torch.float64)
    reference = kl_divergence(
        Normal(1 - r, (r * (1 - r)).sqrt()), Normal(torch.zeros(1, dtype=torch.float64), e.sqrt())
    )
    torch.testing.assert_close(dirac.kl(r, e), reference, rtol=1e-9, atol=1e-9)


@given(eps2=EPS2)
def test_optimal_rate_is_the_minimum(eps2: float) -> None:
    e = torch.tensor(eps2, dtype=torch.float64)
    low, high = torch.tensor(1e-9, dtype=torch.float64), torch.tensor(1 - 1e-12, dtype=torch.float64)
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if dirac.kl(a, e) < dirac.kl(b, e) else (a, high)
    assert float(dirac.optimal_rate(e)) == pytest.approx(float(low), abs=1e-6)


def test_optimal_rate_at_the_papers_prior() -> None:
    e = torch.tensor(0.025, dtype=torch.float64)
    assert float(dirac.optimal_rate(e)) == pytest.approx((1 - 0.05 + (1 + 4 * 0.025**2) ** 0.5) / 2, abs=1e-12)
    rate = dirac.optimal_rate(e).requires_grad_()
    (slope,) = torch.autograd.grad(dirac.kl(rate, e), rate)
    assert abs(float(slope)) < 1e-9
    printed = torch.tensor((1 - 4 * 0.025 + (1 + 16 * 0.025**2) ** 0.5) / 2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(dirac.kl(printed, e), printed)
    assert abs(float(slope)) > 1, "the paper's formula would be a stationary point after all"


@given(rate=st.floats(1e-3, 1 - 1e-3), eps2=EPS2, xi=st.floats(-3, 3))
def test_gradients_match_finite_differences(rate: float, eps2: float, xi: float) -> None:
    r = torch.tensor([rate], dtype=torch.float64, requires_grad=True)
    e, x = torch.tensor([eps2], dtype=torch.float64), torch.tensor([xi], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: dirac.kl(v, e), r, eps=1e-7, rtol=1e-4)
    assert torch.autograd.gradcheck(lambda v: dirac.sample(v, x), r, eps=1e-7, rtol=1e-4)


def test_kl_falls_all_the_way_to_the_optimum() -> None:
    e = torch.tensor(0.025, dtype=torch.float64)
    grid = torch.linspace(1e-4, float(dirac.optimal_rate(e)), 10_000, dtype=torch.float64)
    assert bool((dirac.kl(grid, e).diff() < 0).all())


@pytest.mark.parametrize("start", [-1.0, 0.0, 1.0, 2.0])
def test_nothing_is_nan_at_the_clamps(start: float) -> None:
    rate = torch.full((4,), start)
    dirac.clamp_(rate)
    rate.requires_grad_()
    loss = dirac.kl(rate, 1e-6).sum() + dirac.sample(rate, torch.randn(8, 4)).square().sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert rate.grad is not None
    assert bool(torch.isfinite(rate.grad).all())


def test_samples_have_the_moments_of_the_noise() -> None:
    rate = torch.tensor([0.01, 0.3, 0.9], dtype=torch.float64)
    theta = dirac.sample(rate, torch.randn(400_000, 3, dtype=torch.float64))
    torch.testing.assert_close(theta.mean(0), 1 - rate, atol=5e-3, rtol=0)
    torch.testing.assert_close(theta.var(0), rate * (1 - rate), atol=5e-3, rtol=0)
    torch.testing.assert_close(theta.square().mean(0), 1 - rate, atol=5e-3, rtol=0)


@given(curvature=st.floats(0, 5000), nats=st.floats(2, 1000))
def test_stationary_rate_minimises_the_quadratic_objective(curvature: float, nats: float) -> None:
    a, e = torch.tensor(curvature, dtype=torch.float64), dirac.eps2_from_nats(torch.tensor(nats, dtype=torch.float64))
    rate = dirac.stationary_rate(a, e).requires_grad_()
    (slope,) = torch.autograd.grad(a * rate / 2 + dirac.kl(rate, e), rate)
    rate = rate.detach()
    scale = 1 / float(rate) + 1 / (1 - float(rate))
    assert abs(float(slope)) < 1e-9 * scale * max(1.0, curvature, 2 * nats)


@given(cost=st.floats(5, 500), nats=st.floats(5, 500))
def test_a_channel_goes_exactly_when_it_costs_less_than_its_price(cost: float, nats: float) -> None:
    rate = dirac.stationary_rate(torch.tensor(2 * cost), dirac.eps2_from_nats(torch.tensor(nats)))
    if abs(cost - nats) > 0.01:
        assert (float(rate) > 0.5) == (cost < nats)
