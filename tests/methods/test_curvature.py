"""The estimate of the curvature against the exact Gauss-Newton diagonal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev

from rbprune.bayes.likelihood import Softmax
from rbprune.errors import ConfigError
from rbprune.methods.curvature import (
    REACH,
    TOLERANCE,
    RunningCurvature,
    Slopes,
    check_outputs,
    curvature_slopes,
    distance_from_softmax,
)

DRAWS = 20_000


def fisher(outputs: Tensor) -> Tensor:
    """R = diag p - p p^T of each example."""
    p = outputs.softmax(1)
    return torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)


def test_the_random_direction_has_the_covariance_of_a_softmax() -> None:
    scores = torch.tensor([[2.0, 0.0, -1.0, 0.5], [0.0, 0.0, 0.0, 6.0]], dtype=torch.float64)
    draws = Softmax().direction(scores.repeat(DRAWS, 1), None).view(DRAWS, 2, 4).double()
    found = torch.einsum("dni,dnj->nij", draws, draws) / len(draws)
    torch.testing.assert_close(found, fisher(scores), rtol=0, atol=0.005)
    assert float(draws.sum(2).abs().max()) < 1e-6, "it is orthogonal to the constants, in which a softmax is flat"


def test_many_draws_give_the_exact_gauss_newton_diagonal() -> None:
    """A = N mean over examples of diag(J^T R J) in factors on the hidden channels of a network that is not linear."""
    torch.manual_seed(0)
    first, second = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()
    x, ones, size = torch.randn(6, 4, dtype=torch.float64), torch.ones(5, dtype=torch.float64), 1000

    def outputs(theta: Tensor, inputs: Tensor) -> Tensor:
        return second(torch.tanh(first(inputs)) * theta)

    jacobian = jacrev(outputs)(ones, x)
    exact = size * torch.einsum("nkc,nkl,nlc->nc", jacobian, fisher(outputs(ones, x)), jacobian).mean(0)
    theta = ones.expand(DRAWS * 6, 5).clone().requires_grad_(True)
    z = outputs(theta, x.repeat(DRAWS, 1))
    found = curvature_slopes(Softmax(), z, None, [theta])
    assert found is not None
    squares = found[0].squares().double()
    estimate = RunningCurvature(5)
    estimate.update(found[0], size)
    value = estimate.value().double()
    error = size * squares.view(DRAWS, 6, 5).mean(1).std(0) / DRAWS**0.5
    assert bool(((value - exact).abs() < 4 * error).all()), "four standard errors"
    assert bool((error < 0.05 * exact).all()), "else this shows nothing"


def test_nineteen_of_twenty_intervals_hold_the_true_curvature() -> None:
    """200 stages of 12 updates each, on examples drawn anew: the exact curvature is that of all the data."""
    generator = torch.Generator().manual_seed(0)
    first, second = nn.Linear(4, 5), nn.Linear(5, 3)
    data = torch.randn(4096, 4, generator=generator)
    with torch.no_grad():
        hidden = torch.tanh(first(data))
        jacobian = second.weight.unsqueeze(0) * hidden.unsqueeze(1)
        exact = 1000 * torch.einsum("nkc,nkl,nlc->nc", jacobian, fisher(second(hidden)), jacobian).mean(0)
    held = []
    for _ in range(200):
        running = RunningCurvature(5)
        assert bool(running.standard_error().isinf().all())
        for _ in range(12):
            x = data[torch.randint(4096, (64,), generator=generator)]
            theta = torch.ones(64, 5, requires_grad=True)
            slopes = curvature_slopes(Softmax(), second(torch.tanh(first(x)) * theta), None, [theta])
            assert slopes is not None
            running.update(slopes[0], 1000)
        error = running.standard_error()
        held.append((running.value() - exact).abs() < 1.96 * error)
        assert bool((error < 0.3 * exact).all()), "else this shows nothing"
    share = torch.stack(held).double().mean()
    assert 0.92 < float(share) < 0.98


def test_the_running_mean_weighs_updates_by_their_age() -> None:
    running = RunningCurvature(2)
    assert running.value().tolist() == [0, 0]
    squares = []
    for number in range(5):
        slopes = torch.randn(3, 2, generator=torch.Generator().manual_seed(number))
        running.update(Slopes(slopes, slopes), 7)
        squares.append(7 * slopes.square().mean(0))
        weights = torch.tensor([float((k + 1) * (k + 2)) for k in range(number + 1)])
        wanted = (weights.unsqueeze(1) * torch.stack(squares)).sum(0) / weights.sum()
        torch.testing.assert_close(running.value(), wanted)


def test_a_restored_estimate_goes_on_as_the_old_one() -> None:
    old, new = RunningCurvature(2), RunningCurvature(2)
    old.update(Slopes(torch.randn(3, 2), torch.randn(3, 2)), 5)
    new.load_state_dict({name: value.clone() for name, value in old.state_dict().items()})
    more = Slopes(torch.randn(3, 2), torch.randn(3, 2))
    for estimate in (old, new):
        estimate.update(more, 5)
    assert new.updates == 2
    assert torch.equal(old.value(), new.value())


@pytest.mark.parametrize("outputs", [torch.zeros(3), torch.zeros(3, 1), torch.zeros(2, 1, 4, 4)])
def test_scores_of_one_class_are_refused(outputs: Tensor) -> None:
    with pytest.raises(
        ConfigError, match=rf"at least two classes in dimension 1.*\({', '.join(map(str, outputs.shape))}"
    ):
        check_outputs(Softmax(), outputs)


def test_a_loss_of_a_tensor_cannot_be_one_of_several() -> None:
    with pytest.raises(ConfigError, match="the model's output is a tuple, and the loss is one of a tensor"):
        check_outputs(Softmax(), (torch.zeros(2, 3),))


def test_an_estimate_that_noise_made_negative_counts_as_nothing() -> None:
    running = RunningCurvature(2)
    running.update(Slopes(torch.tensor([[-1.0, 2.0]]), torch.ones(1, 2)), 3)
    assert running.value().tolist() == pytest.approx([0.0, 6.0])


@pytest.mark.parametrize(
    ("loss", "known"),
    [
        (lambda z: F.cross_entropy(z, torch.tensor([0, 2, 1])), True),
        (lambda z: F.cross_entropy(z, torch.tensor([0, 2, 1]), label_smoothing=0.2), True),
        (lambda z: F.mse_loss(z, torch.ones(3, 3)), False),
        (lambda z: F.binary_cross_entropy_with_logits(z, torch.eye(3)), False),
    ],
    ids=["cross-entropy", "smoothed", "squares", "binary"],
)
def test_a_loss_of_softmax_probabilities_is_told_by_its_gradient(loss: Callable[[Tensor], Tensor], known: bool) -> None:
    scores = torch.randn(3, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(scores), scores)
    distance = float(distance_from_softmax(gradient))
    by_hand = sum(abs(sum(row)) for row in gradient.tolist()) / sum(abs(v) for row in gradient.tolist() for v in row)
    assert distance == pytest.approx(by_hand, abs=1e-6)
    assert (distance < 1e-5) if known else (distance > 2 * TOLERANCE)


def exact(products: Tensor) -> RunningCurvature:
    """A curvature that is known without any error."""
    running = RunningCurvature(len(products), cross=True)
    assert running.products is not None
    running.products.copy_(products)
    running.running.copy_(products.diagonal())
    running.updates = 1
    return running


@pytest.mark.parametrize("channel", range(4))
def test_a_compensated_removal_costs_what_the_optimal_brain_surgeon_says(channel: int) -> None:
    torch.manual_seed(0)
    factor = torch.randn(9, 4) + 0.3
    products = factor.T @ factor
    running, free = exact(products), torch.arange(4) != channel
    change = torch.zeros(4)
    change[channel] = -0.5  # a larger one would ask for more than the reach
    moved = running.compensated(change, free)
    assert float(moved[channel]) == -0.5
    surgeon = 0.25 / float(torch.linalg.inv(products)[channel, channel]) / 2
    assert running.cost(moved) == pytest.approx(surgeon, rel=1e-4)
    assert running.cost(moved) < running.cost(change) == pytest.approx(0.25 * float(products[channel, channel]) / 2)


def test_twins_stand_in_for_each_other_half_each_at_most() -> None:
    """Channel 0 does what channels 1 and 2 do together; channel 3 has nothing to do with it."""
    slopes = torch.tensor([[2.0, 1, 1, 0], [0, 0, 0, 3]])
    running = exact(slopes.T @ slopes)
    change = torch.tensor([-0.4, 0, 0, 0])
    moved = running.compensated(change, torch.tensor([False, True, True, True]))
    torch.testing.assert_close(moved, torch.tensor([-0.4, 0.4, 0.4, 0]), atol=1e-3, rtol=0)
    assert running.cost(moved) < 1e-3 < 0.3 < running.cost(change)
    far = running.compensated(2 * change, torch.tensor([False, True, True, True]))
    assert 0.25 < float(far[1]) <= REACH and float(far[2]) == pytest.approx(float(far[1])), "the reach is a limit"
    assert running.cost(far) < running.cost(2 * change)


def test_what_is_not_known_well_moves_less() -> None:
    slopes = torch.tensor([[1.0, 1.0]])
    sure, unsure = exact(slopes.T @ slopes), exact(slopes.T @ slopes)
    unsure.variance.fill_(9.0)
    change, free = torch.tensor([-0.4, 0.0]), torch.tensor([False, True])
    assert float(sure.compensated(change, free)[1]) == pytest.approx(0.4, abs=1e-3)
    assert float(unsure.compensated(change, free)[1]) == pytest.approx(0.4 / (1 + 3.0), abs=1e-3)


def test_without_cross_terms_or_updates_nothing_else_moves() -> None:
    change, free = torch.tensor([-1.0, 0.0]), torch.tensor([False, True])
    plain = RunningCurvature(2)
    plain.update(Slopes(torch.ones(3, 2), torch.ones(3, 2)), 10)
    for running in (plain, RunningCurvature(2, cross=True), exact(torch.zeros(2, 2))):
        assert running.compensated(change, free).tolist() == [-1, 0]
    assert exact(torch.ones(2, 2)).compensated(change, torch.zeros(2, dtype=torch.bool)).tolist() == [-1, 0]
