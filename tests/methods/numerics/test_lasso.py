"""The lasso against its optimality conditions and an independent solver."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.methods.numerics.lasso import lasso, select


def problem(samples: int = 60, channels: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """G and c, over the number of samples, of correlated channels of which a few matter."""
    torch.manual_seed(seed)
    x = torch.randn(samples, channels, dtype=torch.float64) + torch.randn(samples, 1, dtype=torch.float64)
    truth = torch.zeros(channels, dtype=torch.float64)
    truth[:4] = torch.tensor([3.0, -2.0, 1.0, 0.5]).double()
    y = x @ truth + 0.1 * torch.randn(samples, dtype=torch.float64)
    return x.T @ x / samples, x.T @ y / samples


def ista(gram: Tensor, cross: Tensor, penalty: float, steps: int = 20_000) -> Tensor:
    rate = 1 / float(torch.linalg.eigvalsh(gram)[-1])
    beta = torch.zeros_like(cross)
    for _ in range(steps):
        beta = torch.nn.functional.softshrink(beta - rate * (gram @ beta - cross), rate * penalty)
    return beta


def violation(gram: Tensor, cross: Tensor, penalty: float, beta: Tensor) -> float:
    """How far the gradient is from the subdifferential: -lambda sign(b) where b is not 0, within +-lambda elsewhere."""
    slope = cross - gram @ beta
    at_zero = (slope.abs() - penalty).clamp(min=0)
    return float(torch.where(beta == 0, at_zero, (slope - penalty * beta.sign()).abs()).max())


@pytest.mark.parametrize("penalty", [0.0, 1e-3, 0.05, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimality_conditions_hold(seed: int, penalty: float) -> None:
    gram, cross = problem(seed=seed)
    assert violation(gram, cross, penalty, lasso(gram, cross, penalty)) < 1e-7


def test_the_conditions_of_this_test_can_fail() -> None:
    gram, cross = problem()
    beta = lasso(gram, cross, 0.05)
    assert violation(gram, cross, 0.06, beta) > 1e-3
    assert violation(gram, cross, 0.05, beta + 1e-3) > 1e-4


@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_it_equals_ista(penalty: float) -> None:
    gram, cross = problem()
    torch.testing.assert_close(lasso(gram, cross, penalty), ista(gram, cross, penalty), atol=1e-7, rtol=0)


def test_it_does_not_depend_on_the_start() -> None:
    gram, cross = problem()
    start = torch.randn(12, dtype=torch.float64)
    before = start.clone()
    torch.testing.assert_close(lasso(gram, cross, 0.1, start), lasso(gram, cross, 0.1), atol=1e-8, rtol=0)
    assert torch.equal(start, before)


def test_more_than_the_largest_correlation_leaves_nothing() -> None:
    gram, cross = problem()
    top = float(cross.abs().max())
    assert int(lasso(gram, cross, top * 1.001).count_nonzero()) == 0
    assert int(lasso(gram, cross, top * 0.999).count_nonzero()) == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", range(13))
def test_as_many_channels_are_kept_as_asked(count: int, seed: int) -> None:
    kept = select(*problem(seed=seed), count).tolist()
    assert len(set(kept)) == count
    assert kept == sorted(kept)


def test_the_channels_that_matter_are_kept() -> None:
    """With so many samples and so little noise every penalty of the right size finds the truth."""
    for seed in range(3):
        assert select(*problem(samples=500, seed=seed), 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_choice_does_not_depend_on_the_scale_of_the_outputs(scale: float) -> None:
    gram, cross = problem()
    assert torch.equal(select(gram, cross, 3), select(gram * scale, cross * scale, 3))


def test_the_kept_channels_are_the_support_of_some_penalty() -> None:
    gram, cross = problem()
    path = {tuple(lasso(gram, cross, float(p)).nonzero()[:, 0].tolist()) for p in torch.logspace(-4, 1, 300)}
    for count in (1, 2, 3):
        assert tuple(select(gram, cross, count).tolist()) in path


def test_when_no_penalty_leaves_just_as_many_the_largest_are_taken() -> None:
    cross = torch.tensor([0.1, 1.0, -1.0, 0.5])  # 1 and 2 go together
    assert select(torch.eye(4), cross, 1).tolist() == [1]
    assert select(torch.diag(torch.tensor([1.0, 2.0, 1.0, 1.0])), cross, 1).tolist() == [2]


def test_zero_equal_and_dependent_channels_are_survived() -> None:
    gram, cross = problem(channels=5)
    # channel 5 repeats channel 0, channel 6 is always zero
    index = torch.tensor([0, 1, 2, 3, 4, 0])
    gram, cross = gram[index][:, index], cross[index]
    gram = torch.nn.functional.pad(gram, (0, 1, 0, 1))
    cross = torch.nn.functional.pad(cross, (0, 1))
    beta = lasso(gram, cross, 0.01)
    assert violation(gram, cross, 0.01, beta) < 1e-7
    assert float(beta[6]) == 0
    for count in range(8):
        kept = select(gram, cross, count).tolist()
        assert len(set(kept)) == count
        assert 6 not in kept or count == 7
    assert select(torch.zeros(3, 3), torch.zeros(3), 2).tolist() == [0, 1]


def test_a_count_beyond_the_channels_is_refused() -> None:
    with pytest.raises(ConfigError, match="count is 13, but there are 12 channels; give 0 to 12"):
        select(*problem(), 13)
