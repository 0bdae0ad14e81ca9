"""Momentum made orthogonal."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from rbprune.train.checkpoint import optimizer_tensors, restore_optimizer
from rbprune.train.muon import COEFFICIENTS, ITERATIONS, Muon, is_matrix, orthogonalised


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (16, 16)])
def test_the_step_has_the_singular_vectors_of_the_momentum_and_values_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = orthogonalised(matrix)
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    inside = u.T @ found @ vt.T  # diagonal in the singular vectors of the momentum
    assert (inside - torch.diag(inside.diagonal())).abs().max() < 1e-9
    large = s > 0.05 * s.max()
    assert inside.diagonal()[large].min() > 0.4
    assert inside.diagonal().max() < 1.3


@pytest.mark.parametrize("shape", [(64, 576), (576, 64), (48, 48)])
def test_it_is_the_published_iteration_also_where_singular_values_are_tiny(shape: tuple[int, int]) -> None:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = drawn * torch.logspace(0, -6, shape[1], dtype=torch.float64)
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm()
    for _ in range(ITERATIONS):
        x = a * x + b * x @ x.T @ x + c * x @ x.T @ x @ x.T @ x
    assert (orthogonalised(matrix) - x).abs().max() < 1e-9
    assert (orthogonalised(matrix.float()) - x).abs().max() < 1e-4


def test_a_first_step_is_what_the_formula_says() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 3, 2, 2, dtype=torch.float64))
    before, gradient = weight.detach().clone(), torch.randn_like(weight)
    weight.grad = gradient.clone()
    Muon([weight], lr=0.01, momentum=0.9, weight_decay=0.1).step()
    direction = orthogonalised(((1 + 0.9) * gradient).flatten(1).float()).double().view_as(before)
    expected = before * (1 - 0.01 * 0.1) - 0.01 * 0.2 * 12**0.5 * direction
    assert torch.allclose(weight.detach(), expected, atol=1e-9)


def test_vectors_and_depthwise_filters_get_the_steps_of_adam() -> None:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(7)), nn.Parameter(torch.randn(5, 1, 3, 3))]
    theirs = [nn.Parameter(parameter.detach().clone()) for parameter in ours]
    assert not any(is_matrix(parameter) for parameter in ours)
    muon, adam = Muon(ours, lr=0.01), torch.optim.Adam(theirs, lr=0.01)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        muon.step()
        adam.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, atol=1e-6)


def test_its_state_goes_through_a_checkpoint_to_the_bit() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4))
    optimizer = Muon(model.parameters(), lr=0.01)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    other = copy.deepcopy(model)
    again = Muon(other.parameters(), lr=0.01)
    restore_optimizer(again, {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer).items()})
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        theirs.grad = mine.grad
    optimizer.step()
    again.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
