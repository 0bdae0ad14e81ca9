"""Several processes that train one network together (torchrun, Lightning Fabric): what they must agree on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist
from torch import Tensor, nn

from rbprune.errors import ProcessesError, first_line

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


def is_restarted() -> bool:
    """Whether torchrun has started the processes anew because one of them died (``--max-restarts``)."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def group_name() -> str | None:
    """What torchrun calls the processes that it started together, also when it starts them anew; None where they have
    no name of their own."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if name in (None, "", "none") else name


def lost_process(error: Exception) -> ProcessesError | None:
    """The error to raise in place of one by which torch tells that another process is gone; None for any other.

    >>> print(lost_process(RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:5")))
    the processes that train together have lost each other: [../gloo/transport/tcp/pair.cc:534] Connection closed by
    peer [::1]:5; one of them has ended, and said why if it could, or the network between them failed
    """
    told = isinstance(error, RuntimeError) and ("gloo" in str(error).lower() or "NCCL" in str(error))
    if not told and not isinstance(error, dist.DistError):
        return None
    return ProcessesError(
        f"the processes that train together have lost each other: {first_line(error)}; one of them has ended, and said "
        "why if it could, or the network between them failed"
    )


@contextmanager
def lost_processes_named() -> Iterator[None]:
    """Inside, the loss of another process is an error of ours."""
    try:
        yield
    except RuntimeError as error:
        lost = lost_process(error) if world() > 1 else None
        if lost is None:
            raise
        raise lost from error


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
