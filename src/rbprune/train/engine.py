"""The machine under a run: device, precision, processes (Lightning Fabric), memory layout, threads."""

from __future__ import annotations

import atexit
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rbprune.errors import ConfigError
from rbprune.settings.sections import RuntimeSettings
from rbprune.utils.processes import is_restarted


class Engine:
    """Sets modules and optimizers up for training, and puts batches where the model is.

    What its settings leave "auto" is float32, in the memory layout that the model has; ``train.precision`` decides it.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        self.settings = settings
        logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            devices, nodes = _processes(settings)
            precision = "32-true" if settings.precision == "auto" else settings.precision
            try:
                self.fabric = Fabric(
                    accelerator=settings.accelerator, devices=devices, num_nodes=nodes, precision=precision
                )
            except (RuntimeError, ValueError) as error:
                raise ConfigError(f"runtime.accelerator={settings.accelerator!r} cannot be used: {error}") from error
            if devices * nodes > 1:
                if nodes == 1 and is_restarted():
                    meet_apart_from_earlier_attempts(self.fabric.device)
                ours = not dist.is_initialized()
                self.fabric.launch()
                if ours:
                    atexit.register(leave_the_group)

    @property
    def rank(self) -> int:
        """The number of this process among all that train together."""
        return self.fabric.global_rank

    @property
    def world(self) -> int:
        """How many processes train together."""
        return self.fabric.world_size

    @property
    def main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.fabric.is_global_zero

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Inside, torch uses the configured number of threads."""
        before = torch.get_num_threads()
        if self.settings.threads is not None:
            torch.set_num_threads(self.settings.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def place(self, model: nn.Module) -> None:
        """Put a model on the device in the memory layout of the run; to be called again after every cut."""
        model.to(self.fabric.device)
        if self.settings.channels_last is True:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def setup(self, module: nn.Module, *optimizers: torch.optim.Optimizer) -> tuple[nn.Module, list[Any]]:
        """The module as it trains here (precision, processes), and its optimizers."""
        ready = self.fabric.setup(module, *optimizers) if optimizers else self.fabric.setup(module)
        if not optimizers:
            return ready, []
        wrapped, *rest = ready
        return wrapped, list(rest)

    def seed(self, number: int) -> None:
        """Seed the generators that a step here can draw from.

        On a CPU only its own: ``torch.manual_seed`` also notes the seed, with the text of the call stack, for every
        kind of accelerator that might wake up later, which costs a CPU some tenths of a millisecond.
        """
        if self.fabric.device.type == "cpu":
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)

    def wait(self) -> None:
        """Until all processes are here."""
        self.fabric.barrier()

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process; all get the same answer."""
        if self.world == 1:
            return flag
        found = self.fabric.all_reduce(torch.tensor(float(flag), device=self.fabric.device), reduce_op="sum")
        return bool(found)

    def highest(self, number: int) -> int:
        """The highest of the numbers that the processes give; all get the same answer."""
        if self.world == 1:
            return number
        found = torch.tensor(float(number), device=self.fabric.device)
        told = self.fabric.all_reduce(found, reduce_op="max")
        assert isinstance(told, Tensor)
        return int(told)

    def of_main(self, number: int) -> int:
        """The number that the first process gives; all get the same answer."""
        if self.world == 1:
            return number
        found = torch.tensor(float(number if self.main else 0), device=self.fabric.device)
        told = self.fabric.all_reduce(found, reduce_op="sum")
        assert isinstance(told, Tensor)
        return int(told)

    def backward(self, loss: Tensor) -> None:
        """Gradients of ``loss``."""
        self.fabric.backward(loss)

    def put(self, batch: Any, *, share: bool = False) -> Any:
        """A batch on the device; with ``share``, only this process's part of it."""

        def move(tensor: Tensor) -> Tensor:
            if share and self.world > 1 and tensor.dim():
                tensor = tensor[self.rank :: self.world]
            tensor = tensor.to(self.fabric.device)
            if self.settings.channels_last is True and tensor.dim() == 4:
                tensor = tensor.contiguous(memory_format=torch.channels_last)
            return tensor

        return tree_map_only(Tensor, move, batch)


def leave_the_group() -> None:
    """End the group of processes while Python still runs; Fabric does so for NCCL only.

    The threads of a Gloo group that is left to the end of the process have been seen to abort it (SIGABRT) when all its
    work was done."""
    if dist.is_initialized():
        dist.destroy_process_group()


def meet_apart_from_earlier_attempts(device: torch.device) -> None:
    """Let processes that torchrun has started anew on one machine find each other, where its store is shared.

    The store still holds the addresses of the processes that died, and torch does not tell attempts apart there
    (pytorch issue 135712): whoever reads before the new address is written waits for the dead. On several machines the
    count of attempts differs from one to the other, so there the shared store has to be switched off, by
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or dist.is_initialized():
        return
    shared = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", shared),  # type: ignore[attr-defined]
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


class Together(nn.Module):
    """A model and what a method trains beside it as one module, so that several processes agree on all gradients."""

    def __init__(self, model: nn.Module, method: nn.Module) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


def _processes(settings: RuntimeSettings) -> tuple[int, int]:
    """How many on each machine, and on how many machines: torchrun says both, else the settings say the first."""
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", 1))
    return int(os.environ.get("LOCAL_WORLD_SIZE", settings.devices)), nodes
