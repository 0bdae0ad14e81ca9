"""The curvature of the total loss in the factors on channels, estimated while the network trains.

With outputs z = f(x; theta), J = dz / dtheta and R = -d^2 log p / dz^2 (its Fisher form), the Gauss-Newton curvature of
the negative log-likelihood of N examples is A = N E[diag(J^T R J)]. For a random v with covariance R,
E[(J^T v)^2] = diag(J^T R J), so one backward pass from z that stops at theta estimates it from a batch. Where only
products with R are known, E[(J^T xi) (J^T R xi)] is the same for xi of random signs, by two backward passes. What R is
for which loss: ``bayes/likelihood.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rbprune.bayes.likelihood import Likelihood, SecondDerivative, Softmax
from rbprune.errors import ConfigError
from rbprune.utils import processes
from rbprune.utils.processes import BatchShare

EVERY, OFTEN, FEWEST_UPDATES = 10, 2, 16
"""After how many steps there is an update: the least where a stage is so short that it would have fewer updates than
that. Under a small budget it has some twenty steps, and would else decide by two or three batches."""
GROWTH = 2
"""Updates count with this power of their number: the last third of a stage is 70 % of the mean, so that it follows a
network that changes, and is known the better the longer the stage lasts."""
UPDATE = 1 / 3
"""What an update takes at most, as a part of a training step: a backward pass to the factors and not to the weights."""
MOST_CROSS = 4096
"""Up to so many channels in a stage the products of all pairs of slopes are kept."""
REACH = 0.5
"""A factor that makes up for others changes by at most so much."""
RIDGE, MOST_RIDGE = 1e-6, 1e6
"""What is added to the diagonal of the curvature before a system with it is solved, as a part of its mean: at first,
and when it is given up."""
TOLERANCE = 0.05
"""How far the slopes of a softmax loss may be from summing to 0, as a part of their size; rounding explains that."""


class RunningCurvature(nn.Module):
    """A running mean of the estimates with its standard error, for each channel; later updates count more.

    With weights w_k of the updates, summing to 1, the mean of the batch means m_k has the variance sum w_k^2 var(m_k),
    and var(m_k) is the variance between the examples of a batch over their number: examples are drawn independently.
    With ``cross`` the mean of a_i b_j is kept for every pair of channels, of which the curvature is the diagonal: what
    a change d of all factors costs is d^T H d / 2.
    """

    def __init__(self, channels: int, *, cross: bool = False) -> None:
        super().__init__()
        self.running: Tensor
        self.register_buffer("running", torch.zeros(channels))
        self.variance: Tensor
        self.register_buffer("variance", torch.zeros(channels))
        self.products: Tensor | None
        self.register_buffer("products", torch.zeros(channels, channels) if cross and channels <= MOST_CROSS else None)
        self.updates = 0

    def update(self, slopes: Slopes, dataset_size: int, share: BatchShare | None = None) -> None:
        """Take in the slopes of every example of a batch; of several processes, each gives those of its own examples
        and what they count, by their number where it gives none."""
        self.updates += 1
        weight = update_weight(self.updates)
        found = batch_moments(slopes, share, cross=self.products is not None)
        self.running.lerp_(dataset_size * found.mean, weight)
        if found.variance is not None:
            self.variance.lerp_(dataset_size**2 * found.variance / found.examples, weight)
        if self.products is not None and found.products is not None:
            self.products.lerp_(dataset_size * found.products, weight)

    def value(self) -> Tensor:
        """A, for the whole training set; 0 before the first update, and where noise made it less than nothing."""
        return self.running.clamp_min(0)

    def cost(self, change: Tensor) -> float:
        """d^T H d / 2 for a change d of the factors, in nats over the training set; at most ``MOST_CROSS`` channels
        have their cross terms, more are taken as independent."""
        products = self.products
        total = (change.square() * self.running).sum() if products is None else change @ products @ change
        return max(0.0, float(total) / 2)

    def compensated(self, change: Tensor, free: Tensor) -> Tensor:
        """The given change d_G of some factors, with the one of the free factors S beside it that makes it cheapest.

        d^T H d / 2 is least over d_S at d_S = -H_SS^-1 H_SG d_G; a single factor that goes from 1 to 0 then costs
        1/2 / (H^-1)_cc in place of 1/2 H_cc (the optimal brain surgeon). To the diagonal of H_SS is added its standard
        error, and more where a factor would change by more than ``REACH``, beyond which the loss is not quadratic.
        Without any update, or without the cross terms, nothing else changes.
        """
        found = change.masked_fill(free, 0)
        if self.products is None or not self.updates or not bool(free.any()):
            return found
        products = self.products.cpu().double()
        free, products = free.cpu(), (products + products.T) / 2
        part = products[free][:, free] + torch.diag(self.standard_error().cpu().double()[free])
        pull = (products[free] @ found.cpu().double()).unsqueeze(1)
        scale, more = float(part.diagonal().mean()), RIDGE
        while more < MOST_RIDGE and scale > 0:
            factor, failed = torch.linalg.cholesky_ex(part + more * scale * torch.eye(len(part), dtype=part.dtype))
            moved = -torch.cholesky_solve(pull, factor).flatten()
            if not int(failed) and float(moved.abs().max()) <= REACH:
                return found.masked_scatter(free.to(found.device), moved.to(found))
            more *= 4
        return found

    def standard_error(self) -> Tensor:
        """The error of ``value`` that the choice of examples and directions leaves; infinite before any update."""
        if not self.updates:
            return torch.full_like(self.variance, torch.inf)
        squared_weights = 0.0
        for number in range(1, self.updates + 1):
            weight = update_weight(number)
            squared_weights = (1 - weight) ** 2 * squared_weights + weight**2
        return (squared_weights * self.variance).sqrt()

    def get_extra_state(self) -> Tensor:
        """How many updates there were, kept out of the device's memory: a step must not wait for it."""
        return torch.tensor(self.updates)

    def set_extra_state(self, state: Tensor) -> None:
        """Take up what ``get_extra_state`` gave."""
        self.updates = int(state)


def update_interval(steps: int) -> int:
    """After how many steps there is an update, in a stage of so many steps.

    >>> update_interval(20), update_interval(112), update_interval(1000)
    (2, 7, 10)
    """
    return min(EVERY, max(OFTEN, steps // FEWEST_UPDATES))


def update_weight(number: int) -> float:
    """What an update counts in the mean of all updates up to it, counted from 1.

    >>> [round(update_weight(number), 2) for number in (1, 2, 10, 40)]
    [1.0, 0.75, 0.25, 0.07]
    """
    return (GROWTH + 1) / (number + GROWTH)


class Slopes(NamedTuple):
    """Two slopes of the outputs in theta for each example, [examples, channels]: E[left right^T] is J^T R J.

    Both are J^T v where v has the covariance R; otherwise they are J^T xi and J^T R xi.
    """

    left: Tensor
    right: Tensor

    def squares(self) -> Tensor:
        """An estimate of diag(J^T R J) of each example."""
        return self.left * self.right


class BatchMoments(NamedTuple):
    """What a batch, divided among all processes, tells of the squares of its slopes."""

    examples: int
    mean: Tensor
    variance: Tensor | None
    """Between examples; None where there is but one."""
    products: Tensor | None
    """The mean of a_i b_j for every pair of channels, where it was asked for."""


def batch_moments(slopes: Slopes, share: BatchShare | None, *, cross: bool) -> BatchMoments:
    """The moments over the examples of all processes, the same bits in each of them: all must come to the same rates.

    A process whose mean was divided by something else than its examples (labels that are ignored) has squares in a unit
    of its own; its weight brings them to that of the whole batch.
    """
    squares, rows = slopes.squares(), len(slopes.left)
    products = slopes.left.T @ slopes.right / rows if cross else None
    if processes.world() == 1:
        return BatchMoments(rows, squares.mean(0), squares.var(0) if rows > 1 else None, products)
    own = rows if share is None else share.examples
    everywhere = int(processes.total(squares.new_tensor(float(own))))
    even = squares.new_tensor(processes.world() * own / everywhere)
    weight = even if share is None else share.weight.to(squares)
    mean = processes.mean(weight * squares.mean(0))
    spread = ((weight / even * squares[:own] if own else squares[:0]) - mean).square().sum(0)
    variance = processes.total(spread) / (everywhere - 1) if everywhere > 1 else None
    return BatchMoments(everywhere, mean, variance, None if products is None else processes.mean(weight * products))


def curvature_slopes(likelihood: Likelihood, outputs: Any, targets: Any, thetas: list[Tensor]) -> list[Slopes] | None:
    """For each theta the slopes whose products estimate J^T R J of each example; None where there is no R."""
    if isinstance(likelihood, SecondDerivative):
        leaves = [z for z in tree_leaves(outputs) if isinstance(z, Tensor) and z.is_floating_point()]
        pair = likelihood.pair(outputs, targets, len(thetas[0]))
        if pair is None:
            return None
        once, twice = (_slopes(leaves, thetas, directions) for directions in pair)
        return [Slopes(a.float(), b.float()) for a, b in zip(once, twice, strict=True)]
    found = _slopes([outputs], thetas, [likelihood.direction(outputs, targets)])
    return [Slopes(s.float(), s.float()) for s in found]


def _slopes(outputs: list[Tensor], thetas: list[Tensor], directions: list[Tensor]) -> tuple[Tensor, ...]:
    used = [(z, v.to(z.dtype)) for z, v in zip(outputs, directions, strict=True) if z.requires_grad]
    found = torch.autograd.grad(
        [z for z, _ in used], thetas, [v for _, v in used], retain_graph=True, allow_unused=len(outputs) > 1
    )
    return tuple(torch.zeros_like(t) if slope is None else slope for t, slope in zip(thetas, found, strict=True))


def check_outputs(likelihood: Likelihood, outputs: Any) -> None:
    """Refuse outputs that the loss cannot be a likelihood of."""
    if isinstance(likelihood, SecondDerivative):
        return
    if not isinstance(outputs, Tensor):
        raise ConfigError(
            f"the model's output is a {type(outputs).__name__}, and the loss is one of a tensor; give a loss_fn of "
            "your own that takes this output, or set rates='adam'"
        )
    if isinstance(likelihood, Softmax) and (outputs.dim() < 2 or outputs.shape[1] < 2):
        raise ConfigError(
            f"cross-entropy needs scores of at least two classes in dimension 1, and the outputs are of shape "
            f"{tuple(outputs.shape)}: with one class it is 0 whatever the network does; use "
            "F.binary_cross_entropy_with_logits for one score, or a loss of errors for numbers"
        )


def distance_from_softmax(gradient: Tensor) -> Tensor:
    """How far a loss is from one of softmax probabilities, seen from its gradient in the outputs.

    Adding a constant to all scores of an example changes no softmax, so the slopes of each example sum to 0.

    >>> float(distance_from_softmax(torch.tensor([[0.25, -0.25], [-0.5, 0.5]])))
    0.0
    """
    slopes = gradient.detach().float()
    return slopes.sum(1).abs().sum() / slopes.abs().sum()
