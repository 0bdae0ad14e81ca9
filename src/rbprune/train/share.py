"""The part of a batch that each of several processes trains on, and what it counts among the parts of all.

Gradients are averaged over the processes, whatever the number of examples behind each. For their mean to be the
gradient of the mean over the whole batch, process r weighs its loss by P n_r / sum n, where P is the number of
processes and n_r what its own mean was divided by: its examples, or for a cross-entropy the weights of the labels that
are not ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.bayes.likelihood import Likelihood, Softmax
from rbprune.errors import DataError
from rbprune.train.stream import SourceStream, Stream, count_examples
from rbprune.utils import processes
from rbprune.utils.processes import BatchShare, own_rows
from rbprune.utils.state import tensor_sum


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


def own_parts(stream: Stream, number: int, start: int, rank: int, world: int) -> Iterator[BatchPart]:
    """The parts of a process of all batches of an epoch, from batch ``start`` on.

    Of sources that can, every process reads its own examples alone; of others all read whole batches, and of a user's
    loader the first batch is compared, since one that gives every process other batches would lose most examples.
    """
    if world > 1 and isinstance(stream, SourceStream) and stream.reads_parts:
        for index, (inputs, targets) in enumerate(stream.parts(number, start, rank, world), start):
            whole = stream.examples_of(index)
            yield BatchPart(inputs, targets, whole, own_rows(whole, rank, world)[1])
        return
    for index, (inputs, targets) in enumerate(stream.epoch(number, start), start):
        if world > 1 and index == start and not isinstance(stream, SourceStream):
            _check_same_batch(inputs, targets, getattr(stream, "name", "the loader"))
        yield divide_batch(inputs, targets, rank, world, f"batch {index} of an epoch")


def _check_same_batch(inputs: Any, targets: Any, name: str) -> None:
    """Refuse a loader that gives the processes different batches; all must call it."""
    own = [tensor_sum(leaf) for leaf in tree_leaves((inputs, targets)) if isinstance(leaf, Tensor)]
    sums = processes.gathered(own)
    others = [str(rank) for rank, theirs in enumerate(sums) if theirs != sums[0]]
    if others:
        raise DataError(
            f"{name} gives process {', '.join(others)} another first batch than process 0, and rbprune divides every "
            "batch among the processes itself, so that examples would be left out or count twice; give every process "
            "the same batches in the same order: no sampler or shards by process, and the same seed"
        )


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
