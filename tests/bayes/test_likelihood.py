"""Draws have the covariance of the loss's exact Hessian; scales are those of the maximum likelihood."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.bayes.likelihood import Bernoulli, Location, SecondDerivative, Softmax, likelihood_of

DRAWS = 20_000
LABELS = torch.tensor([0, 2, 1])
MAP = torch.tensor([[[0, 1], [2, -100]], [[1, 1], [-100, 0]], [[2, 2], [2, 0]]])
SOFT = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.1, 0.1, 0.8]])
WEIGHTS = torch.tensor([1.0, 3.0, 0.5])

CASES: list[tuple[Callable[..., Tensor], tuple[int, ...], Tensor]] = [
    (F.cross_entropy, (3, 3), LABELS),
    (nn.CrossEntropyLoss(weight=WEIGHTS), (3, 3), LABELS),
    (nn.CrossEntropyLoss(weight=WEIGHTS), (3, 3), LABELS.byte()),
    (nn.CrossEntropyLoss(label_smoothing=0.2), (3, 3), LABELS),
    (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2), (3, 3), LABELS),
    (functools.partial(F.cross_entropy, ignore_index=2), (3, 3), LABELS),
    (F.cross_entropy, (3, 3), SOFT),
    (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.1), (3, 3), SOFT),
    (F.cross_entropy, (3, 3, 2, 2), MAP),
    (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3), (3, 3, 2, 2), MAP),
    (F.binary_cross_entropy_with_logits, (3, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.5]])),
    (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 0.3])), (3, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0], [0, 0]])),
    (nn.BCEWithLogitsLoss(weight=torch.tensor([2.0, 0.3])), (3, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0], [0, 0]])),
]


def hessians(loss_fn: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    """B d^2 loss / dz_i^2 of each example, exactly: [examples, outputs, outputs]."""
    flat = outputs.double().flatten()
    whole = torch.autograd.functional.hessian(lambda z: loss_fn(z.view(outputs.shape).to(outputs), targets), flat)
    size = outputs[0].numel()
    blocks = [whole[i * size : (i + 1) * size, i * size : (i + 1) * size] for i in range(len(outputs))]
    return len(outputs) * torch.stack(blocks)


@pytest.mark.parametrize(("loss_fn", "shape", "targets"), CASES)
def test_draws_have_the_covariance_of_the_hessian(loss_fn: Any, shape: tuple[int, ...], targets: Tensor) -> None:
    outputs = torch.randn(shape)
    likelihood = likelihood_of(loss_fn)
    assert isinstance(likelihood, Softmax | Bernoulli)
    draws = torch.stack([likelihood.direction(outputs, targets).flatten(1) for _ in range(DRAWS)]).double()
    found = torch.einsum("dni,dnj->nij", draws, draws) / DRAWS
    exact = hessians(loss_fn, outputs, targets)
    assert float((found - exact).abs().max()) < 0.05 * float(exact.abs().max())


def test_without_targets_every_example_counts_alike() -> None:
    outputs = torch.randn(4, 5, 2)
    for targets in (None, torch.randint(5, (4, 2))):
        torch.manual_seed(3)
        draws = Softmax().direction(outputs, targets)
        if targets is None:
            first = draws
    torch.testing.assert_close(first, draws)


@pytest.mark.parametrize(
    ("loss_fn", "errors", "scale", "information"),
    [
        (F.mse_loss, lambda n: 0.3 * torch.randn(n), 2 * 0.09, 1 / 0.09),
        (nn.L1Loss(), lambda n: 0.3 * torch.distributions.Laplace(0.0, 1.0).sample((n,)), 0.3, 1 / 0.09),
        (functools.partial(F.huber_loss, delta=1e3), lambda n: 0.3 * torch.randn(n), 0.09, 1 / 0.09),
        (nn.SmoothL1Loss(beta=1e-6), lambda n: 0.3 * torch.distributions.Laplace(0.0, 1.0).sample((n,)), 0.3, 1 / 0.09),
    ],
)
def test_the_scale_of_errors_is_that_of_the_maximum_likelihood(
    loss_fn: Any, errors: Any, scale: float, information: float
) -> None:
    """A normal error of variance s^2 has the information 1 / s^2, a Laplace error of mean size b has 1 / b^2."""
    likelihood = likelihood_of(loss_fn)
    assert isinstance(likelihood, Location)
    targets = torch.randn(400, 500)
    outputs = targets + errors(200_000).view(400, 500)
    likelihood.measure(outputs, targets)
    assert likelihood.scale == pytest.approx(scale, rel=0.02)
    assert likelihood.information == pytest.approx(information, rel=0.03)
    draws = likelihood.direction(outputs, None)
    assert float(draws.double().square().mean()) == pytest.approx(likelihood.information, rel=0.02)


def test_a_nat_of_the_squared_error_is_two_variances_over_the_outputs() -> None:
    likelihood = Location(F.mse_loss)
    targets = torch.zeros(8, 4)
    likelihood.measure(targets + 0.5, targets)
    nats = (0.5**2 / (2 * 0.25)) * 4  # of one example: four outputs, each e^2 / (2 sigma^2)
    assert float(F.mse_loss(targets + 0.5, targets)) / likelihood.loss_per_nat(targets) == pytest.approx(nats)


def test_the_scale_is_that_of_the_first_batches() -> None:
    likelihood = Location(F.mse_loss)
    targets = torch.zeros(8, 4)
    for _ in range(Location.PASSES):
        likelihood.direction(targets + 1.0, targets)
    before = likelihood.scale
    likelihood.direction(targets + 100.0, targets)
    assert likelihood.scale == before == pytest.approx(2.0)


def two_heads(outputs: dict[str, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    """A loss over a dictionary that mixes both heads."""
    classes = F.cross_entropy(outputs["classes"] + outputs["shift"], targets[0])
    return classes + 5 * (outputs["shift"] - targets[1]).square().mean()


def test_any_other_loss_gives_its_own_second_derivative() -> None:
    torch.manual_seed(0)
    outputs = {"classes": torch.randn(4, 3), "shift": torch.randn(4, 1)}
    targets = (torch.tensor([0, 1, 2, 1]), torch.randn(4, 1))
    pair = SecondDerivative(two_heads).pair(outputs, targets, examples=4)
    assert pair is not None
    xi, curved = pair

    def flat(z: Tensor) -> Tensor:
        return two_heads({"classes": z[:12].view(4, 3), "shift": z[12:].view(4, 1)}, targets)

    z = torch.cat([outputs["classes"].flatten(), outputs["shift"].flatten()])
    whole = torch.autograd.functional.hessian(flat, z)
    expected = 4 * whole @ torch.cat([x.flatten() for x in xi])
    torch.testing.assert_close(torch.cat([r.flatten() for r in curved]), expected, rtol=1e-4, atol=1e-5)
    assert all(bool((x.abs() == 1).all()) for x in xi)


def ctc(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of outputs [time, examples, classes]; torch cannot differentiate it twice."""
    times, examples, _ = outputs.shape
    lengths = torch.full((examples,), times), torch.full((examples,), targets.shape[1])
    return F.ctc_loss(outputs.log_softmax(2), targets, *lengths)


def test_a_loss_that_torch_cannot_differentiate_twice_gives_the_difference_of_its_slopes() -> None:
    torch.manual_seed(0)
    outputs, targets = torch.randn(6, 2, 4), torch.tensor([[1, 2], [3, 3]])
    pair = SecondDerivative(ctc).pair(outputs, targets, examples=2)
    assert pair is not None
    (xi,), (curved,) = pair

    def slope(z: Tensor) -> Tensor:
        z = z.requires_grad_()
        return torch.autograd.grad(ctc(z, targets), z)[0]

    z, step, each = outputs.double(), 1e-5, xi.double()
    expected = 2 * (slope(z + step * each) - slope(z - step * each)) / (2 * step)
    torch.testing.assert_close(curved.double(), expected, rtol=1e-2, atol=1e-4)


def test_outputs_that_the_loss_does_not_look_at_get_no_noise() -> None:
    """Maps beside the predictions, and places without a target: the estimate keeps its mean and loses their noise."""
    torch.manual_seed(0)
    jacobian = torch.randn(2, 6, dtype=torch.float64)  # of a prediction of 4 places and a map of 2, in one factor

    def loss(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        return (outputs["predicted"][:, :2] - targets).square().sum(1).mean() / 2

    outputs = {"map": torch.randn(2, 2), "predicted": torch.randn(2, 4)}
    estimates = []
    for _ in range(20):
        pair = SecondDerivative(loss).pair(outputs, torch.randn(2, 2), examples=2)
        assert pair is not None
        xi, curved = (torch.cat(part, 1).double() for part in pair)
        assert not bool(xi[:, :2].any()) and not bool(xi[:, 4:].any())
        assert bool((xi[:, 2:4].abs() == 1).all())
        estimates.append((jacobian * xi).sum(1) * (jacobian * curved).sum(1))
    exact = jacobian[:, 2:4].square().sum(1)
    spread = 2 * (jacobian[:, 2] * jacobian[:, 3]).abs()  # all that is left: the sign of one product
    for estimate in estimates:
        torch.testing.assert_close((estimate - exact).abs(), spread, rtol=1e-5, atol=1e-6)


def test_an_output_at_the_bottom_of_its_loss_keeps_its_curvature() -> None:
    pair = SecondDerivative(lambda z, y: (z - y).square().mean()).pair(torch.ones(3, 2), torch.ones(3, 2), examples=3)
    assert pair is not None
    assert bool((pair[0][0].abs() == 1).all())


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda z, y: (z - y).abs().mean(),
        lambda z, y: (z * y).mean(),
        lambda z, y: (1 - z * y).clamp_min(0).mean(),
    ],
)
def test_a_loss_without_curvature_is_noticed(loss_fn: Any) -> None:
    assert SecondDerivative(loss_fn).pair(torch.randn(4, 3), torch.randn(4, 3), examples=4) is None


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.CrossEntropyLoss(reduction="sum"),
        functools.partial(F.mse_loss, reduction="sum"),
        lambda z, y: F.cross_entropy(z, y),
        functools.partial(F.mse_loss, weight=torch.ones(1)),
    ],
)
def test_what_is_not_a_plain_mean_goes_by_its_second_derivative(loss_fn: Any) -> None:
    assert isinstance(likelihood_of(loss_fn), SecondDerivative)
