"""The proximal step against problems whose solution is known."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rbprune.methods.numerics.proximal import apg_step, soft


@given(value=st.floats(-5, 5), threshold=st.floats(0, 3))
def test_soft_threshold_minimises_its_objective(value: float, threshold: float) -> None:
    grid = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    best = grid[(0.5 * (grid - value) ** 2 + threshold * grid.abs()).argmin()]
    result = soft(torch.tensor(value, dtype=torch.float64), threshold)
    assert abs(float(result) - float(best)) < 2e-4
    if abs(value) <= threshold:
        assert float(result) == 0


def run(target: Tensor, curvature: Tensor, momentum: float, gamma: float, lr: float, steps: int) -> Tensor:
    value, velocity = torch.ones_like(target), torch.zeros_like(target)
    for _ in range(steps):
        value, velocity = apg_step(value, curvature * (value - target), velocity, lr, momentum, gamma)
    return value


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_a_quadratic_with_a_penalty_ends_at_its_solution_with_exact_zeros(momentum: float) -> None:
    target = torch.tensor([2.0, 1.0, 0.3, 0.1, 0.0, -1.0], dtype=torch.float64)
    curvature = torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    solution = (target - 0.5 / curvature).clamp(min=0)
    value = run(target, curvature, momentum, gamma=0.5, lr=0.05, steps=2000)
    torch.testing.assert_close(value, solution, atol=1e-9, rtol=0)
    assert ((value == 0) == (solution == 0)).all()
    assert (solution == 0).tolist() == [False, False, True, True, True, True]


def test_zeros_are_reached_in_single_precision_too() -> None:
    value = run(torch.tensor([1.0, 0.2]), torch.ones(2), momentum=0.9, gamma=0.5, lr=0.1, steps=500)
    assert float(value[1]) == 0
    assert float(value[0]) == pytest.approx(0.5, abs=1e-5)


def test_without_momentum_it_is_plain_proximal_gradient() -> None:
    value, grad, old = torch.rand(50), torch.randn(50), torch.randn(50)
    new, velocity = apg_step(value, grad, old, 0.1, 0.0, 0.4)
    step = value - 0.1 * grad
    plain = torch.where(step > 0.04, step - 0.04, 0.0)
    torch.testing.assert_close(new, plain)
    torch.testing.assert_close(velocity, soft(step, 0.04) - value)


def test_without_a_penalty_it_is_nesterovs_method() -> None:
    target, curvature = torch.tensor([2.0, 3.0]).double(), torch.tensor([1.0, 0.2]).double()
    reference = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([reference], lr=0.1, momentum=0.9, nesterov=True)
    value, velocity = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for _ in range(30):
        value, velocity = apg_step(value, curvature * (value - target), velocity, 0.1, 0.9, 0.0)
        reference.grad = curvature * (reference.detach() - target)
        optimizer.step()
    torch.testing.assert_close(value, reference.detach())


def test_momentum_is_faster_on_a_flat_direction() -> None:
    target, curvature = torch.tensor([3.0]).double(), torch.tensor([0.05]).double()
    errors = [abs(float(run(target, curvature, m, 0.0, 0.1, 100)) - 3) for m in (0.0, 0.9)]
    assert errors[1] < errors[0] / 10
