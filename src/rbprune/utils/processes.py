"""Several processes that train one network together (torchrun, Lightning Fabric): what they must agree on."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist
from torch import Tensor, nn

Kind = TypeVar("Kind")


class BatchShare(NamedTuple):
    """What the examples of this process count among those of all processes in one training step."""

    examples: int
    """How many of them count: none where a repeated example stands in for want of another one."""
    weight: Tensor
    """The mean over the processes of their weighted means is the mean over the whole batch."""


def world() -> int:
    """How many processes train together; 1 where nobody asked for more."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_main() -> bool:
    """Whether this is the process that writes and prints."""
    return world() == 1 or dist.get_rank() == 0


def is_first() -> bool:
    """Whether this is, or is going to be, the process that writes: known before the processes have met.

    torchrun, Lightning Fabric and SLURM number the processes that they start in the environment.
    """
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def mean(value: Tensor) -> Tensor:
    """The mean over all processes, the same bits in each of them.

    >>> import torch
    >>> mean(torch.tensor([2.0]))
    tensor([2.])
    """
    return total(value) / world() if world() > 1 else value


def total(value: Tensor) -> Tensor:
    """The sum over all processes, the same bits in each of them.

    >>> import torch
    >>> total(torch.tensor([2.0]))
    tensor([2.])
    """
    if world() == 1:
        return value
    # NCCL adds up what is on a GPU alone
    moved = value.cuda() if not value.is_cuda and dist.get_backend() == "nccl" else value.clone()
    dist.all_reduce(moved)
    return moved.to(value.device)


def gathered(value: Kind) -> list[Kind]:
    """What all processes give, in their order; it is sent from process to process, never read from a file.

    >>> gathered(3)
    [3]
    """
    if world() == 1:
        return [value]
    found: list[Any] = [None] * world()
    dist.all_gather_object(found, value)
    return found


def share_buffers(module: nn.Module) -> None:
    """Give every process the buffers of the first one.

    Parameters stay the same in all processes, because their gradients are averaged. Running statistics of batch
    normalisation do not: each process has taken them over its own examples since the last forward pass.
    """
    if world() > 1:
        for buffer in module.buffers():
            value = buffer.detach().contiguous()
            dist.broadcast(value, 0)
            buffer.detach().copy_(value)
