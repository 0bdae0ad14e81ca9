"""Greedy choice and least squares against brute force and torch.linalg.lstsq."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.methods.numerics.reconstruct import Moments, greedy, refit, rescale, solve, take_over


def contributions(samples: int = 40, channels: int = 7) -> Tensor:
    x = torch.randn(samples, channels, dtype=torch.float64) * torch.linspace(0.5, 1.5, channels).double()
    return x + 0.5 * torch.randn(samples, 1, dtype=torch.float64)  # correlated, as channels are


def loss(x: Tensor, removed: list[int]) -> float:
    return float(x[:, removed].sum(1).square().sum())


@pytest.mark.parametrize("seed", range(5))
def test_each_pick_is_the_best_single_addition(seed: int) -> None:
    torch.manual_seed(seed)
    x = contributions()
    removed = greedy(x.T @ x, 7).tolist()
    assert sorted(removed) == list(range(7))
    for i, pick in enumerate(removed):
        rest = [j for j in range(7) if j not in removed[:i]]
        assert pick == min(rest, key=lambda j: loss(x, [*removed[:i], j]))


def test_the_first_pick_is_optimal_and_later_ones_are_no_better_than_the_best_subset() -> None:
    x = contributions()
    removed = greedy(x.T @ x, 4).tolist()
    best = [min(loss(x, list(s)) for s in combinations(range(7), size)) for size in range(1, 5)]
    found = [loss(x, removed[:size]) for size in range(1, 5)]
    assert found[0] == pytest.approx(best[0])
    assert all(f >= b - 1e-9 for f, b in zip(found, best, strict=True))
    assert found[3] < sum(loss(x, list(s)) for s in combinations(range(7), 4)) / 35, "no better than chance"


def test_greedy_prefers_channels_that_cancel() -> None:
    x = torch.randn(30, 4, dtype=torch.float64)
    x = torch.cat([x, -x[:, :1] * 0.9, torch.zeros(30, 1, dtype=torch.float64)], dim=1)
    x[:, 0] *= 0.5
    x[:, 4] *= 0.5
    assert greedy(x.T @ x, 3).tolist() == [5, 4, 0]


def test_greedy_edges() -> None:
    gram = torch.eye(3)
    assert greedy(gram, 0).tolist() == []
    assert greedy(torch.zeros(3, 3), 3).tolist() == [0, 1, 2]
    for count in (-1, 4):
        with pytest.raises(ConfigError, match=f"count is {count}, but there are 3 channels; give 0 to 3"):
            greedy(gram, count)


def test_greedy_leaves_its_argument_alone() -> None:
    x = contributions()
    gram = x.T @ x
    before = gram.clone()
    greedy(gram, 5)
    assert torch.equal(gram, before)


def test_rescale_equals_lstsq() -> None:
    x, y, kept = contributions(), torch.randn(40, dtype=torch.float64), torch.tensor([0, 2, 5])
    reference = torch.linalg.lstsq(x[:, kept], y[:, None]).solution.squeeze(1)
    torch.testing.assert_close(rescale(x.T @ x, x.T @ y, kept), reference, rtol=1e-9, atol=1e-9)


def test_rescale_of_everything_is_one() -> None:
    x = contributions()
    kept = torch.arange(7)
    torch.testing.assert_close(rescale(x.T @ x, x.T @ x.sum(1), kept), torch.ones(7).double())


def test_rescale_survives_zero_equal_and_tiny_channels() -> None:
    x = contributions(channels=3)
    x = torch.cat([x, x[:, :1], torch.zeros(40, 1).double(), 1e-7 * torch.randn(40, 1).double()], dim=1)
    kept = torch.tensor([0, 3, 4, 5])
    y = 3 * x[:, 0] + x[:, 1] + 2 * x[:, 5]
    w = rescale(x.T @ x, x.T @ y, kept)
    reference = torch.linalg.lstsq(x[:, [0, 5]], y[:, None]).solution.squeeze(1)
    assert float(w[0] + w[1]) == pytest.approx(float(reference[0]))
    assert float(w[0]) == pytest.approx(float(w[1]))
    assert float(w[2]) == 1, "nothing is known about a channel that is always zero"
    assert float(w[3]) == pytest.approx(float(reference[1]), rel=1e-6)
    assert rescale(x.T @ x, x.T @ y, torch.tensor([], dtype=torch.long)).shape == (0,)


def moments_of(x: Tensor, y: Tensor, batch: int = 7) -> Moments:
    moments = Moments(x.shape[1], y.shape[1])
    for part in range(0, len(x), batch):
        moments.add(x[part : part + batch].float(), y[part : part + batch].float())
    return moments


def test_refit_equals_lstsq_with_an_intercept() -> None:
    x, kept = (contributions() + 3).float().double(), torch.tensor([1, 4, 6])
    y = (x @ torch.randn(7, 2).double() + 5 + 0.1 * torch.randn(40, 2).double()).float().double()
    weight, intercept = refit(moments_of(x, y), kept)
    design = torch.cat([x[:, kept], torch.ones(40, 1).double()], dim=1)
    reference = torch.linalg.lstsq(design, y).solution
    torch.testing.assert_close(weight, reference[:-1], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(intercept, reference[-1], rtol=1e-8, atol=1e-8)


def test_refit_survives_fewer_samples_than_columns_and_constant_columns() -> None:
    x, y = contributions(samples=4).float().double(), torch.randn(4, 2).double()
    x[:, 0] = 2.0
    y = y.float().double()
    weight, intercept = refit(moments_of(x, y), torch.arange(7))
    assert bool(torch.isfinite(weight).all())
    torch.testing.assert_close(x @ weight + intercept, y, atol=1e-6, rtol=0)
    weight, intercept = refit(moments_of(x, y), torch.tensor([], dtype=torch.long))
    assert weight.shape == (0, 2)
    torch.testing.assert_close(intercept, y.mean(0))


def test_refit_without_samples_says_so() -> None:
    with pytest.raises(ConfigError, match="call add first"):
        refit(Moments(2, 1), torch.tensor([0]))


def test_moments_do_not_depend_on_how_samples_are_batched() -> None:
    x, y = contributions(), torch.randn(40, 2).double()
    one, many = moments_of(x, y, batch=40), moments_of(x, y, batch=3)
    assert one.count == many.count == 40
    for name in ("gram", "cross", "x_sum", "y_sum"):
        torch.testing.assert_close(getattr(one, name), getattr(many, name))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_kept_weights_take_over_as_least_squares_would(intercept: bool) -> None:
    torch.manual_seed(0)
    x = contributions(60, 7) + 1
    weight, kept = torch.randn(3, 7, dtype=torch.float64), torch.tensor([0, 2, 3, 6])
    moments = Moments(7, 0)
    for part in x.split(20):
        moments.add(part, part[:, :0])
    change, shift = take_over(moments, weight, kept, ridge=0.0, intercept=intercept)
    ones = torch.ones(60, int(intercept), dtype=torch.float64)
    design = torch.cat([x[:, kept], ones], 1)
    best = torch.linalg.lstsq(design, x @ weight.T).solution
    torch.testing.assert_close(weight[:, kept].T + change, best[:4])
    torch.testing.assert_close(shift, best[4] if intercept else torch.zeros(3, dtype=torch.float64))


def test_a_ridge_draws_towards_the_weights_that_were_there() -> None:
    torch.manual_seed(0)
    x, weight, kept = contributions(60, 5), torch.randn(2, 5, dtype=torch.float64), torch.tensor([0, 1, 4])
    moments = Moments(5, 0)
    moments.add(x, x[:, :0])
    sizes = []
    for ridge in (1e-9, 0.1, 1e9):
        change, _ = take_over(moments, weight, kept, ridge=ridge, intercept=False)
        squares = (x[:, kept] ** 2).sum(0)
        by_hand = x[:, kept].T @ x[:, kept] + ridge * torch.diag(squares)
        torch.testing.assert_close(by_hand @ change, x[:, kept].T @ x[:, [2, 3]] @ weight[:, [2, 3]].T)
        sizes.append(float(change.norm()))
    assert sizes[0] > sizes[1] > sizes[2] < 1e-8


def test_an_input_that_is_always_0_takes_over_nothing() -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0]])
    moments = Moments(3, 0)
    moments.add(x, x[:, :0])
    change, _ = take_over(moments, torch.ones(1, 3), torch.tensor([0, 1]), ridge=1e-3, intercept=False)
    assert float(change[1]) == 0
    right = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert solve(torch.eye(2, dtype=torch.float64), right, 1.0).tolist() == pytest.approx([0.5, 1.0])


def test_a_constant_input_is_taken_over_by_the_intercept() -> None:
    torch.manual_seed(0)
    x = contributions(50, 4)
    x[:, 1], x[:, 3] = 0.1, 1e3 + 0.1
    weight, moments = torch.randn(2, 4, dtype=torch.float64), Moments(4, 0)
    moments.add(x, x[:, :0])
    change, shift = take_over(moments, weight, torch.tensor([0, 1, 2]), ridge=1e-3, intercept=True)
    assert float(change.abs().max()) < 1e-9, "inputs that vary say nothing about one that does not"
    torch.testing.assert_close(shift, weight[:, 3] * (1e3 + 0.1))


def test_taking_over_needs_samples() -> None:
    with pytest.raises(ConfigError, match="take_over needs samples, but none were added"):
        take_over(Moments(2, 0), torch.ones(1, 2), torch.tensor([0]), ridge=0.0, intercept=True)
