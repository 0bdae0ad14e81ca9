"""The group horseshoe against torch.distributions, by quadrature and by Monte Carlo."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Distribution, Gamma, HalfCauchy, InverseGamma, LogNormal, Normal, kl_divergence

from rbprune.bayes import horseshoe
from tests.bayes import quadrature

MU, VAR = st.floats(-6, 6), st.floats(1e-4, 4)


def f64(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def integrated(mu: Tensor, var: Tensor, prior: Distribution) -> float:
    """KL(LN(mu, var) || prior) as an integral over log x."""
    reach = 12 * var.sqrt() + var  # the mass of x under q lies var to the right of that of log x
    log_x, weights = quadrature.rule(mu - reach, mu + reach)
    q = Normal(mu, var.sqrt()).log_prob(log_x)
    return float((weights * q.exp() * (q - prior.log_prob(log_x.exp()) - log_x)).sum())


@given(mu=MU, var=VAR, log_scale=st.floats(-24, 2))
def test_kl_to_a_gamma_equals_quadrature(mu: float, var: float, log_scale: float) -> None:
    scale = math.exp(log_scale)
    reference = integrated(f64(mu), f64(var), Gamma(f64(0.5), f64(1 / scale)))
    assert float(horseshoe.kl_gamma(f64(mu), f64(var), scale)) == pytest.approx(reference, rel=1e-8, abs=1e-8)


@given(mu=MU, var=VAR)
def test_kl_to_an_inverse_gamma_equals_quadrature(mu: float, var: float) -> None:
    reference = integrated(f64(mu), f64(var), InverseGamma(f64(0.5), f64(1.0)))
    assert float(horseshoe.kl_inverse_gamma(f64(mu), f64(var))) == pytest.approx(reference, rel=1e-8, abs=1e-8)


def test_kls_equal_monte_carlo() -> None:
    mu, var = torch.tensor([-1.0, 0.0, 0.5]).double(), torch.tensor([0.1, 0.5, 0.3]).double()
    q = LogNormal(mu, var.sqrt())
    x = q.sample((200_000,))
    gamma = (q.log_prob(x) - Gamma(f64(0.5), f64(1 / 0.7)).log_prob(x)).mean(0)
    inverse = (q.log_prob(x) - InverseGamma(f64(0.5), f64(1.0)).log_prob(x)).mean(0)
    torch.testing.assert_close(horseshoe.kl_gamma(mu, var, 0.7), gamma, atol=0.02, rtol=0)
    torch.testing.assert_close(horseshoe.kl_inverse_gamma(mu, var), inverse, atol=0.02, rtol=0)


@given(mu=MU, logvar=st.floats(-20, 2))
def test_kl_of_weights_equals_torch_distributions(mu: float, logvar: float) -> None:
    reference = kl_divergence(Normal(f64(mu), f64(logvar / 2).exp()), Normal(f64(0.0), f64(1.0)))
    torch.testing.assert_close(horseshoe.kl_weights(f64(mu), f64(logvar)), reference, rtol=1e-9, atol=1e-9)


def test_the_prior_of_z_is_a_half_cauchy_times_a_half_cauchy() -> None:
    """sqrt(Gamma(1/2, t^2) IG(1/2, 1)) is half-Cauchy of scale t, which is why the factors are what they are."""
    x = (Gamma(0.5, 1 / 0.3**2).sample((200_000,)) * InverseGamma(0.5, 1.0).sample((200_000,))).sqrt()
    levels = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9])
    reference = HalfCauchy(0.3).icdf(levels)
    torch.testing.assert_close(torch.quantile(x, levels), reference, rtol=0.03, atol=0)


def test_samples_have_the_moments_of_the_product_of_the_factors() -> None:
    mu = [torch.tensor([m]).double() for m in (-2.0, 0.5, 1.0, 0.2)]
    logvar = [torch.tensor([v]).double() for v in (-2.0, -1.0, -3.0, -1.5)]
    factors = [LogNormal(m, (v / 2).exp()).sample((200_000,)) for m, v in zip(mu, logvar, strict=True)]
    product = torch.stack(factors).prod(0).sqrt()
    mu_z, var_z = horseshoe.moments(mu, logvar)
    z = horseshoe.sample(mu_z, var_z, torch.randn(200_000, 1).double())
    for draws in (product, z):
        torch.testing.assert_close(draws.log().mean(0), mu_z, atol=3e-3, rtol=0)
        torch.testing.assert_close(draws.log().var(0), var_z, rtol=0.02, atol=0)
        torch.testing.assert_close(draws.mean(0), horseshoe.fold(mu_z, var_z), rtol=0.01, atol=0)


def test_gradients_match_finite_differences() -> None:
    mu = [torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (1, 1, 3, 3)]
    logvar = [torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (1, 1, 3, 3)]
    xi = torch.randn(5, 3, dtype=torch.float64)
    draw = lambda *p: horseshoe.sample(*horseshoe.moments(p[:4], p[4:]), xi)  # noqa: E731
    assert torch.autograd.gradcheck(draw, (*mu, *logvar))
    # s_a without its tiny scale, whose KL of 1e10 has no digits left for differences
    one = lambda m, v: horseshoe.kl_gamma(m, v.exp(), 0.7) + horseshoe.kl_inverse_gamma(m, v.exp())  # noqa: E731
    assert torch.autograd.gradcheck(one, (mu[2], logvar[2]))


def start(channels: int) -> tuple[list[Tensor], list[Tensor]]:
    sizes = (1, 1, channels, channels)
    mu = [torch.full((n,), m, requires_grad=True) for n, m in zip(sizes, horseshoe.MU_INIT, strict=True)]
    return mu, [torch.full((n,), horseshoe.LOGVAR_INIT, requires_grad=True) for n in sizes]


def test_at_the_start_z_is_one_and_the_kl_is_moderate() -> None:
    mu, logvar = start(4)
    mu_z, var_z = horseshoe.moments(mu, logvar)
    assert mu_z.shape == var_z.shape == (4,)
    torch.testing.assert_close(horseshoe.fold(mu_z, var_z), torch.ones(4), atol=1e-3, rtol=0)
    cost = float(horseshoe.kl_scales(mu, logvar).detach())
    assert 0 < cost < 100
    with torch.no_grad():
        mu[0].zero_()
    assert float(horseshoe.kl_scales(mu, logvar).detach()) > 1e9, "a start at zero would not be as bad as the notes say"


@pytest.mark.parametrize("value", [-50.0, 50.0])
def test_nothing_is_nan_at_the_clamps(value: float) -> None:
    mu, logvar = start(2)
    with torch.no_grad():
        for v in logvar:
            horseshoe.clamp_(v.fill_(value))
    mu_z, var_z = horseshoe.moments(mu, logvar)
    loss = horseshoe.kl_scales(mu, logvar) + horseshoe.sample(mu_z, var_z, torch.randn(8, 2)).sum()
    for gradient in torch.autograd.grad(loss, mu + logvar):
        assert bool(torch.isfinite(gradient).all())


def test_redundancy_is_minus_the_log_of_the_mode_of_z() -> None:
    mu_z, var_z = f64(-0.7), f64(0.4)
    z = torch.linspace(0.01, 3, 300_000, dtype=torch.float64)
    mode = z[LogNormal(mu_z, var_z.sqrt()).log_prob(z).argmax()]
    assert float(horseshoe.redundancy(mu_z, var_z)) == pytest.approx(-math.log(float(mode)), abs=1e-4)
