"""Scores against explicit loops."""

from __future__ import annotations

import pytest
import torch

from rbprune.methods.numerics import importance


def test_norms_of_filters_equal_loops() -> None:
    weight = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(
        importance.l1(weight), torch.tensor([sum(abs(v) for v in weight[c].flatten().tolist()) for c in range(4)])
    )
    torch.testing.assert_close(importance.l2(weight), torch.stack([weight[c].norm() for c in range(4)]))
    torch.testing.assert_close(importance.l1(weight, dim=1), torch.stack([weight[:, c].abs().sum() for c in range(3)]))
    torch.testing.assert_close(importance.l2(weight, dim=1), torch.stack([weight[:, c].norm() for c in range(3)]))


def test_group_norm_covers_all_that_goes_with_a_channel() -> None:
    filters, gamma, columns = torch.randn(5, 3, 3, 3), torch.randn(5), torch.randn(7, 5, 1, 1)
    loop = [(filters[c] ** 2).sum() + gamma[c] ** 2 + (columns[:, c] ** 2).sum() for c in range(5)]
    result = importance.group_norm([filters, gamma, columns], [0, 0, 1])
    torch.testing.assert_close(result, torch.stack(loop).sqrt())


def test_group_norm_wants_one_dimension_per_tensor() -> None:
    with pytest.raises(ValueError, match="zip"):
        importance.group_norm([torch.ones(2), torch.ones(2)], [0])


def test_bn_scale_ignores_the_sign() -> None:
    assert importance.bn_scale(torch.tensor([-2.0, 0.0, 1.0])).tolist() == [2, 0, 1]


@pytest.mark.parametrize("shape", [(6, 4, 3, 5), (6, 4)])
def test_taylor_equals_a_loop(shape: tuple[int, ...]) -> None:
    z, gradient = torch.randn(shape), torch.randn(shape)
    expected = []
    for c in range(4):
        examples = [float((z[n, c] * gradient[n, c]).mean().abs()) for n in range(6)]
        expected.append(sum(examples) / 6)
    torch.testing.assert_close(importance.taylor(z, gradient), torch.tensor(expected))


def test_taylor_is_the_change_of_a_linear_cost() -> None:
    z, slope = torch.randn(1, 4, 3, 3, requires_grad=True), torch.randn(1, 4, 3, 3)
    cost = (z * slope).sum()
    (gradient,) = torch.autograd.grad(cost, z)
    changes = []
    for c in range(4):
        without = z.detach().clone()
        without[:, c] = 0
        changes.append(((without * slope).sum() - cost.detach()).abs() / 9)
    torch.testing.assert_close(importance.taylor(z.detach(), gradient), torch.stack(changes))


def test_normalised_scores_do_not_depend_on_the_scale_of_the_layer() -> None:
    score = torch.rand(8)
    torch.testing.assert_close(importance.normalised(score), importance.normalised(1000 * score))
    assert float(importance.normalised(score).norm()) == pytest.approx(1)
    assert importance.normalised(torch.zeros(3)).tolist() == [0, 0, 0]
