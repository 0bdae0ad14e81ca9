"""The part of a batch that each of several processes trains on, and what it counts among the parts of all.

Gradients are averaged over the processes, whatever the number of examples behind each. For their mean to be the
gradient of the mean over the whole batch, process r weighs its loss by P n_r / sum n, where P is the number of
processes and n_r what its own mean was divided by: its examples, or for a cross-entropy the weights of the labels that
are not ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.bayes.likelihood import Likelihood, Softmax
from rbprune.errors import DataError
from rbprune.train.stream import count_examples
from rbprune.utils import processes
from rbprune.utils.processes import BatchShare


@dataclass(frozen=True)
class BatchPart:
    """What one process trains on of a batch."""

    inputs: Any
    targets: Any
    whole: int | None
    """The examples of the whole batch; None where nobody can count them, and every process takes all of it."""
    examples: int | None
    """Those of this part that count: none where there are more processes than examples, so that the part is a repeated
    example, which stands in for want of another one."""


def own_rows(whole: int, rank: int, world: int) -> tuple[slice, int]:
    """The rows of a batch of so many that belong to a process, and how many of them count.

    >>> [list(range(7))[own_rows(7, rank, 3)[0]] for rank in range(3)]
    [[0, 3, 6], [1, 4], [2, 5]]
    >>> own_rows(2, 2, 3)
    (slice(0, 1, None), 0)
    """
    if rank < whole:
        return slice(rank, None, world), len(range(rank, whole, world))
    stand_in = rank % max(1, whole)
    return slice(stand_in, stand_in + 1), 0


def divide_batch(inputs: Any, targets: Any, rank: int, world: int, where: str) -> BatchPart:
    """The part of a batch that belongs to a process; numbers without rows go to all.

    A tensor that has another number of rows than there are examples is refused: dividing it would mix up examples.
    """
    whole = count_examples(inputs, targets)
    if world == 1 or whole is None:
        return BatchPart(inputs, targets, whole, whole)
    rows, count = own_rows(whole, rank, world)
    for leaf in tree_leaves((inputs, targets)):
        if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) != whole:
            raise DataError(
                f"{where} has {whole} examples and a tensor of shape {tuple(leaf.shape)}, so it cannot be divided "
                f"among {world} processes; give every tensor one row for each example, or train in one process"
            )

    def cut(tensor: Tensor) -> Tensor:
        return tensor[rows] if tensor.dim() else tensor

    return BatchPart(tree_map_only(Tensor, cut, inputs), tree_map_only(Tensor, cut, targets), whole, count)


@dataclass(frozen=True)
class WeighedLoss:
    """The loss of one part, weighed so that the mean over the processes is the mean over the whole batch."""

    loss: Tensor
    mean: Tensor
    """That mean itself, the same in all processes; without a gradient."""
    by_examples: Tensor | float
    """What anything else that is a mean over the examples of the part has to be multiplied by."""
    share: BatchShare | None
    """What a stage has to know of it; None where there is one process."""


def weigh_loss(loss: Tensor, targets: Any, examples: int | None, likelihood: Likelihood) -> WeighedLoss:
    """Weigh the mean loss of this process's part of a batch, with so many examples that count (``BatchPart``).

    All processes must call it in the same step.
    """
    world = processes.world()
    if world == 1:
        return WeighedLoss(loss, loss.detach(), 1.0, None)
    kind = torch.float32 if loss.device.type == "mps" else torch.float64  # which has no other
    own = torch.tensor(1.0 if examples is None else examples, dtype=kind, device=loss.device)
    divisor = likelihood.divisor(targets) if isinstance(likelihood, Softmax) else None
    counts = own if divisor is None else divisor.to(own) * (own > 0)
    known = torch.where(counts > 0, loss, torch.zeros_like(loss))  # a part whose labels are all ignored has no mean
    total, summed, every = processes.total(torch.stack([counts, counts * known.detach(), own])).unbind()
    weight = world * counts / total
    share = None if examples is None else BatchShare(examples, weight.float())
    return WeighedLoss(weight.to(loss.dtype) * known, (summed / total).to(loss.dtype), world * own / every, share)
