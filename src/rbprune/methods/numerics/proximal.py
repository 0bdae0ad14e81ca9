"""Accelerated proximal gradient with an L1 penalty (Data-Driven Sparse Structure Selection).

    s      = soft(lambda - eta grad, eta gamma)
    v     <- s - lambda + mu v
    lambda <- max(0, s + mu v)

for scales lambda >= 0 with learning rate eta, momentum mu and penalty gamma. The penalty enters through the soft
threshold alone, so scales become exactly 0; ``grad`` is that of the loss without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

SCALE_INIT = 1.0


def soft(value: Tensor, threshold: float) -> Tensor:
    """Soft threshold: towards 0 by ``threshold``, and exactly 0 within it.

    >>> soft(torch.tensor([-2.0, 0.5, 3.0]), 1.0)
    tensor([-1.,  0.,  2.])
    """
    return value - value.clamp(-threshold, threshold)


def apg_step(
    value: Tensor, grad: Tensor, velocity: Tensor, lr: float, momentum: float, gamma: float
) -> tuple[Tensor, Tensor]:
    """New value and velocity; start the velocity at 0.

    >>> apg_step(torch.tensor([1.0, 0.1]), torch.tensor([1.0, 1.0]), torch.zeros(2), 0.1, 0.5, 0.5)
    (tensor([0.7750, 0.0000]), tensor([-0.1500, -0.1000]))
    """
    proximal = soft(value - lr * grad, lr * gamma)
    velocity = proximal - value + momentum * velocity
    return torch.clamp(proximal + momentum * velocity, min=0), velocity
