"""Several processes that train one network together (torchrun, Lightning Fabric): what they must agree on."""

from __future__ import annotations

import os

import torch.distributed as dist
from torch import Tensor, nn


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
    if world() > 1:
        dist.all_reduce(value)
        value = value / world()
    return value


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
