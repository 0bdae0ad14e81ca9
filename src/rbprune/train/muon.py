"""Momentum made orthogonal: the steps with which the speed records on CIFAR10 train their convolutions.

Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), with the step size of Liu et al., "Muon
is scalable for LLM training" (2025), which makes a learning rate mean what it means for Adam. ``torch.optim.Muon``
takes matrices only and computes in bfloat16, which many processors do not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalised(matrix: Tensor) -> Tensor:
    """Nearly U V^T of the singular value decomposition U S V^T: all singular values between about 0.7 and 1.2.

    >>> torch.linalg.svdvals(orthogonalised(torch.diag(torch.tensor([3.0, 1.0, 0.2])))).round(decimals=1).max() < 1.3
    tensor(True)
    """
    x = matrix / matrix.norm().clamp(min=1e-7)
    return _iterated(x.T).T if x.shape[0] > x.shape[1] else _iterated(x)


def _iterated(x: Tensor) -> Tensor:
    """The iteration x <- (a + b x x^T + c (x x^T)^2) x for a matrix that is no taller than wide.

    Every factor is a polynomial of x x^T, so where x is much wider than tall, as filters are (nine times and more), the
    factors are multiplied before they meet x: all products but the first and the last are of the small square.
    """
    a, b, c = COEFFICIENTS
    if x.shape[1] < 2 * x.shape[0]:  # nothing to gain, and the square of small singular values is less exact
        for _ in range(ITERATIONS):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x
    identity = torch.eye(x.shape[0], dtype=x.dtype, device=x.device)
    factor, product, gram = identity, identity, x @ x.T
    for _ in range(ITERATIONS):
        gram = factor @ gram @ factor
        factor = a * identity + b * gram + c * gram @ gram
        product = factor @ product
    return product @ x


def is_matrix(weight: Tensor) -> bool:
    """Whether a weight maps several inputs to several outputs; filters of one input each (depthwise) do not."""
    return weight.dim() >= 2 and weight.shape[0] > 1 and weight.shape[1] > 1


class Muon(torch.optim.Optimizer):
    """Orthogonal momentum for weights that are matrices (filters are their rows), Adam for all other parameters.

    Weight decay is decoupled, and acts on the matrices.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step for every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    rule = _orthogonal_step if is_matrix(parameter) else _adam_step
                    rule(parameter, parameter.grad, self.state[parameter], group)
        return loss


def _orthogonal_step(weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    if not state:
        state["momentum"] = torch.zeros_like(weight)
    momentum = state["momentum"].mul_(group["momentum"]).add_(gradient)
    direction = orthogonalised((gradient + group["momentum"] * momentum).flatten(1).float())
    size = 0.2 * math.sqrt(max(direction.shape))  # the root mean square of a step of Adam
    weight.mul_(1 - group["lr"] * group["weight_decay"])
    weight.sub_((group["lr"] * size * direction).view(weight.shape).to(weight.dtype))


def _adam_step(weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    if not state:
        state |= {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight), "step": torch.zeros(())}
    state["step"] += 1
    step = float(state["step"])
    mean = state["mean"].lerp_(gradient, 0.1)
    square = state["square"].lerp_(gradient * gradient, 0.001)
    size = (square / (1 - 0.999**step)).sqrt_().add_(1e-8)
    weight.sub_(group["lr"] / (1 - 0.9**step) * mean / size)
