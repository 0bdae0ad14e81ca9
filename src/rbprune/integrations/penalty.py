"""A penalty that joins the loss of a training loop without the loop knowing of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


class HiddenPenalty:
    """Adds the gradient of a penalty to the backward pass of whatever loss is made of a network's outputs.

    The outputs are handed on with equal values, but their backward pass also sends 1 into the penalty: the gradients
    are those of loss + penalty, exactly, however the loss is computed, and the loss that the loop shows is its own.

    >>> weight = torch.ones((), requires_grad=True)
    >>> rate = torch.ones((), requires_grad=True)
    >>> penalty = HiddenPenalty(5 * rate)
    >>> first, second = penalty.join((2 * weight, 3 * weight))
    >>> loss = first + second
    >>> loss.backward()
    >>> loss.item(), weight.grad.item(), rate.grad.item(), penalty.is_paid
    (5.0, 5.0, 5.0, True)
    """

    def __init__(self, penalty: Tensor) -> None:
        self._penalty = penalty
        self.is_paid = not penalty.requires_grad
        """Whether a backward pass has come through here; a penalty without a gradient has nothing to pay."""
        if penalty.requires_grad:
            penalty.register_hook(self._once)

    def join(self, outputs: Any) -> Any:
        """The same outputs, with the penalty hidden behind each floating tensor that has a gradient."""
        if self.is_paid:
            return outputs
        return tree_map_only(Tensor, self._join, outputs)

    def _join(self, tensor: Tensor) -> Tensor:
        if not (tensor.requires_grad and tensor.is_floating_point()):
            return tensor
        return _SendsOne.apply(tensor, self._penalty)  # type: ignore[no-untyped-call,no-any-return]

    def _once(self, gradient: Tensor) -> Tensor:
        """One, from however many outputs the gradient came; nothing in a second backward pass."""
        paid, self.is_paid = self.is_paid, True
        return torch.zeros_like(gradient) if paid else torch.ones_like(gradient)


class _SendsOne(torch.autograd.Function):
    """A copy of its first argument, whose backward pass sends a gradient of 1 to the second."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, penalty: Tensor) -> Tensor:
        ctx.one = torch.ones_like(penalty)
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, ctx.one
