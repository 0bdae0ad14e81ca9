from __future__ import annotations

import torch
from torch import Tensor

from rbprune.integrations.penalty import HiddenPenalty


def parts() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    first, second = torch.randn(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    return first.requires_grad_(), second.requires_grad_()


def test_gradients_are_those_of_the_sum_of_loss_and_penalty() -> None:
    weight, rate = parts()
    ((weight * rate).square().sum() + (rate.log() * 3).sum()).backward()
    assert weight.grad is not None
    assert rate.grad is not None
    wanted = weight.grad.clone(), rate.grad.clone()
    weight.grad = rate.grad = None

    penalty = HiddenPenalty((rate.log() * 3).sum())
    penalty.join(weight * rate).square().sum().backward()
    assert penalty.is_paid
    torch.testing.assert_close((weight.grad, rate.grad), wanted, rtol=1e-14, atol=0)


def test_several_outputs_pay_once() -> None:
    weight, rate = parts()
    penalty = HiddenPenalty((2 * rate).sum())
    outputs = penalty.join({"a": weight + 1, "b": [weight * 2, "text", torch.arange(3)]})
    (outputs["a"].sum() + outputs["b"][0].sum()).backward()
    assert rate.grad is not None
    assert rate.grad.tolist() == [2.0] * 4
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0] * 4


def test_gradients_of_something_else_do_not_pay() -> None:
    """As a gradient penalty in the loss asks for them, before the loss goes back."""
    weight, rate = parts()
    penalty = HiddenPenalty((2 * rate).sum())
    outputs = penalty.join(weight**2)
    torch.autograd.grad(outputs.sum(), weight, retain_graph=True)
    assert not penalty.is_paid
    outputs.sum().backward()
    assert penalty.is_paid
    assert rate.grad is not None
    assert rate.grad.tolist() == [2.0] * 4


def test_outputs_may_be_changed_in_place() -> None:
    weight, rate = parts()
    outputs = HiddenPenalty(rate.sum() * 1).join(weight * 2)
    outputs += 1
    outputs.sum().backward()
    assert rate.grad is not None


def test_a_penalty_without_a_gradient_leaves_outputs_alone() -> None:
    outputs = torch.ones(2, requires_grad=True)
    penalty = HiddenPenalty(torch.zeros(()))
    assert penalty.is_paid
    assert penalty.join(outputs) is outputs
