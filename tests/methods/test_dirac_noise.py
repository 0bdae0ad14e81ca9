"""What is seen of the loss through channel noise: slopes, curvature, and the rise that they foretell."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.methods.curvature import Slopes
from rbprune.methods.dirac_noise import FIRST, OPEN, DiracNoise


def seen(noise: DiracNoise, weights: Tensor, rows: int = 64) -> None:
    """A training step of the loss mean(theta . weights)."""
    theta = noise.draw(rows)
    loss = (theta @ weights).mean()
    noise.watch_slope()
    loss.backward()
    noise.take_slope()


def test_the_slope_of_a_linear_loss_is_its_weights() -> None:
    noise, weights = DiracNoise(3, 0.3), torch.tensor([1.0, -2.0, 0.5])
    assert noise.slope.tolist() == [0, 0, 0]
    for _ in range(3):
        seen(noise, weights)
    torch.testing.assert_close(noise.slope, weights)
    assert noise.slopes == 3


def test_a_linear_loss_rises_as_foretold() -> None:
    noise, weights = DiracNoise(3, 0.25), torch.tensor([1.0, -2.0, 0.5])
    seen(noise, weights)
    gone = torch.tensor([True, False, True])
    assert noise.forecast(noise.change(gone), 100) == pytest.approx(-0.75 * 1.5, abs=1e-5), "from 3/4 to 0, twice"
    noise.loss_per_nat = 3.0
    assert noise.forecast(noise.change(gone), 100) == pytest.approx(-0.25 * 1.5, abs=1e-5), "in nats"


def test_a_quadratic_loss_rises_as_foretold_with_its_cross_terms() -> None:
    """L = |M theta|^2 / 2 for each of N examples: H = N M^T M, and the slope at any centre c is M^T M c."""
    torch.manual_seed(0)
    noise, matrix, size = DiracNoise(4, 0.2), torch.randn(3, 4), 50
    hessian = matrix.T @ matrix
    centre = torch.tensor([0.9, 0.7, 0.8, 0.95])
    noise.slope.copy_(hessian @ centre)
    noise.centre.copy_(centre)
    noise.curvature.update(Slopes(3**0.5 * matrix, 3**0.5 * matrix), size)
    gone = torch.tensor([True, True, False, False])

    def loss(theta: Tensor) -> float:
        return float((matrix @ theta).square().sum() / 2)

    mean = noise.mean().detach()
    assert noise.forecast(noise.change(gone), size) == pytest.approx(loss(mean * ~gone) - loss(mean), rel=1e-4)


def test_the_forecast_of_a_compensated_cut_is_that_of_all_factors_that_move() -> None:
    torch.manual_seed(0)
    noise, matrix, size = DiracNoise(4, 0.2), torch.randn(6, 4), 50
    hessian = matrix.T @ matrix
    slope, gone = torch.randn(4), torch.tensor([True, False, False, False])
    noise.curvature.update(Slopes(6**0.5 * matrix, 6**0.5 * matrix), size)
    noise.curvature.variance.zero_()
    mean, after = noise.mean().detach(), noise.compensated_mean(gone)
    assert float(after[0]) == 0 and bool((after[1:] != mean[1:]).all())
    moved = after - mean
    best = -torch.linalg.solve(hessian[1:, 1:], hessian[1:, 0] * moved[0])
    torch.testing.assert_close(moved[1:], best, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(noise.change(gone, compensated=True), moved)
    noise.slope.copy_(slope)
    noise.centre.copy_(mean)
    expected = float(slope @ moved + moved @ hessian @ moved / 2)
    assert noise.forecast(moved, size) == pytest.approx(expected, rel=1e-4)
    noise.slope.zero_()
    assert noise.forecast(moved, size) < noise.forecast(noise.change(gone), size)


def test_the_mean_moves_and_comes_back_to_the_bit() -> None:
    noise = DiracNoise(3, 0.3)
    rate, change = noise.rate.detach().clone(), torch.tensor([-0.7, 0.1, 0.0])
    with noise.moved(change):
        torch.testing.assert_close(noise.mean().detach(), 1 - rate + change)
    assert torch.equal(noise.rate, rate)


def test_the_first_curvature_is_kept() -> None:
    noise = DiracNoise(2, 0.01)
    for number in range(FIRST + 2):
        slopes = torch.full((4, 2), float(number + 1))
        noise.curvature.update(Slopes(slopes, slopes), 10)
        noise.note_curvature()
        if number + 1 == FIRST:
            first = noise.curvature.value().clone()
    assert torch.equal(noise.first, first)
    assert not torch.equal(noise.first, noise.curvature.value())


def test_what_cannot_be_told_from_a_price_is_near_it() -> None:
    noise = DiracNoise(3, 0.01)
    torch.manual_seed(0)
    for _ in range(20):
        slopes = torch.randn(64, 3) * torch.tensor([1.0, 1.0, 3.0])
        noise.curvature.update(Slopes(slopes, slopes), 100)
    price = torch.tensor([100.0, 300.0, 100.0])
    assert noise.near(price, 0.95).tolist() == [True, False, False]
    assert noise.near(price, 0.0).tolist() == [False, False, False], "no confidence, no doubt"


def test_all_of_it_is_restored() -> None:
    noise, other = DiracNoise(2, 0.3), DiracNoise(2, 0.01)
    seen(noise, torch.tensor([1.0, 2.0]))
    noise.passes, noise.loss_per_nat = 7, 0.3
    assert noise.goal.tolist() == [OPEN, OPEN]
    noise.decide(torch.tensor([True, False]), torch.tensor([False, True]), 0.2, torch.rand(3, 2))
    other.load_state_dict({name: value.clone() for name, value in noise.state_dict().items()})
    assert (other.passes, other.slopes, other.is_decided, other.loss_per_nat) == (7, 1, True, 0.3)
    for name, value in noise.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)


def test_the_slope_of_a_network_is_that_of_its_mean_loss() -> None:
    """Against a finite difference of the loss in a factor common to all examples."""
    torch.manual_seed(0)
    first, second = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()
    x, y = torch.randn(32, 4).double(), torch.randint(3, (32,))
    noise = DiracNoise(5, 1e-12)

    def loss(theta: Tensor) -> Tensor:
        return F.cross_entropy(second(torch.tanh(first(x)) * theta), y)

    theta = noise.draw(32)
    value = loss(theta.double())
    noise.watch_slope()
    value.backward()
    noise.take_slope()
    for channel in range(5):
        step = torch.zeros(5).double()
        step[channel] = 1e-4
        found = float((loss(1 + step) - loss(1 - step)).detach()) / 2e-4
        assert float(noise.slope[channel]) == pytest.approx(found, abs=1e-5)
