"""The curvature of the total loss in the factors on channels, estimated while the network trains.

With outputs z = f(x; theta), J = dz / dtheta and R = -d^2 log p / dz^2 (its Fisher form), the Gauss-Newton curvature of
the negative log-likelihood of N examples is A = N E[diag(J^T R J)]. For a random v with covariance R,
E[(J^T v)^2] = diag(J^T R J), so one backward pass from z that stops at theta estimates it from a batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.utils import processes

MEMORY, EVERY = 0.95, 2
"""How much of the running mean an update leaves, and after how many steps there is one."""
OVERHEAD = 1 / 3 / EVERY
"""What the updates add to a training step, as a part of it: each is at most a third of a step, a backward pass to the
factors and not to the weights."""
TOLERANCE = 0.05
"""How far the slopes of a softmax loss may be from summing to 0, as a part of their size; rounding explains that."""


class RunningCurvature(nn.Module):
    """A running mean of the estimates, one for each channel; earlier updates count less and less."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.running: Tensor
        self.register_buffer("running", torch.zeros(channels))
        self.updates = 0

    def update(self, slopes: Tensor, dataset_size: int) -> None:
        """Take in J^T v of every example of a batch: [examples, channels]."""
        # every process saw other examples, and all must come to the same rates
        square = processes.mean(slopes.float().square().mean(0))
        self.running.lerp_(dataset_size * square, 1 - MEMORY)
        self.updates += 1

    def value(self) -> Tensor:
        """A, for the whole training set; 0 before the first update."""
        return self.running / (1 - MEMORY**self.updates) if self.updates else self.running

    def get_extra_state(self) -> Tensor:
        """How many updates there were, kept out of the device's memory: a step must not wait for it."""
        return torch.tensor(self.updates)

    def set_extra_state(self, state: Tensor) -> None:
        """Take up what ``get_extra_state`` gave."""
        self.updates = int(state)


def softmax_direction(outputs: Any) -> Tensor:
    """A random v with covariance R = diag(p) - p p^T, p = softmax(z): sqrt(p) xi - p (sqrt(p) . xi), xi ~ N(0, 1)."""
    if not (isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1):
        raise ConfigError(
            "prune.rates='fixed-point' needs outputs of shape (examples, classes), and the model's are "
            f"{_describe(outputs)}; set prune.rates='adam'"
        )
    root = outputs.detach().float().softmax(1).sqrt()
    xi = torch.randn_like(root)
    direction = root * xi - root.square() * (root * xi).sum(1, keepdim=True)
    return direction.to(outputs.dtype)


def distance_from_softmax(gradient: Tensor) -> Tensor:
    """How far a loss is from one of softmax probabilities, seen from its gradient in the outputs.

    Adding a constant to all scores of an example changes no softmax, so the slopes of each example sum to 0.

    >>> float(distance_from_softmax(torch.tensor([[0.25, -0.25], [-0.5, 0.5]])))
    0.0
    """
    slopes = gradient.detach().float()
    return slopes.sum(1).abs().sum() / slopes.abs().sum()


def _describe(outputs: Any) -> str:
    return f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
