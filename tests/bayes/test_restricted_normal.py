"""The restricted normal where its branches meet."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from rbprune.bayes import restricted_normal as rn


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_mills_ratio_equals_its_integral() -> None:
    x = f64(0.0, 1e-3, 1.0, 29.0, 31.0, 1e4)
    t = torch.linspace(0, 60, 600_001, dtype=torch.float64)[:, None] / (1 + x)
    reference = torch.trapezoid(torch.exp(-t * x - t**2 / 2), t, dim=0)
    torch.testing.assert_close(rn.mills(x), reference, rtol=1e-7, atol=0)


@pytest.mark.parametrize("meeting", [0.0, rn.FAR])
def test_nothing_jumps_where_two_forms_meet(meeting: float) -> None:
    below, above = (f64(meeting + d).requires_grad_() for d in (-1e-12, 1e-12))
    w = f64(50.0)
    for low, high in zip(rn.stats(below, w), rn.stats(above, w), strict=True):
        torch.testing.assert_close(low, high, rtol=1e-9, atol=0)
        slopes = [torch.autograd.grad(v, p, retain_graph=True)[0] for v, p in ((low, below), (high, above))]
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-9)


def test_gradients_match_finite_differences() -> None:
    x = f64(-3.0, -0.4, 0.2, 7.0, 29.0, 40.0).requires_grad_()
    w = f64(6.5, 0.9, 0.3, 2.0, 1.0, 30.0).requires_grad_()
    v = f64(0.1, 0.7, 0.5, 0.99, 0.3, 0.6)
    assert gradcheck(rn.stats, (x, w), rtol=1e-4)
    assert gradcheck(lambda a, b: rn.quantile(a, b, v), (x, w), rtol=1e-4)


def test_quantiles_are_exact_to_rounding() -> None:
    """One more Newton step would change nothing."""
    x, w, v = f64(1e-9, 0.5, 5.0, 1e3, 1e9)[:, None, None], f64(0.1, 3.0, 1e9)[:, None], f64(0.01, 0.5, 0.999, 1.0)
    t = rn.quantile(x, w, v)
    mass = torch.exp(rn.stats(x, t)[0] - rn.stats(x, w)[0])
    torch.testing.assert_close(mass, v.expand_as(mass), rtol=1e-10, atol=0)
