"""How latencies are measured for a table of them: on what, with what, and by which clock.

All that is compared is measured in turns, so that what disturbs one disturbs all. The lower quartile of the turns
counts: a busy machine only makes a call longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph.latency_table import DeviceSettings
from rbprune.measure.backend import Backend, check_backend, runnable
from rbprune.measure.latency import Clock
from rbprune.measure.machine import cpu_name, find_device, synchroniser

TURN_US, TURN_CALLS = 1000.0, 10
"""In a turn a call is repeated for so many microseconds, and at most so often."""


@dataclass(frozen=True)
class Measuring:
    """How latencies are measured."""

    batch: int = 1
    backend: Backend = "eager"
    threads: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = False
    device: str = "auto"
    points: int = 6
    """Widths of a layer on each axis of its grid, about."""
    rounds: int = 15
    clock: Clock = "wall"
    """``cpu`` counts the process's own time: for one thread on a CPU that others use too."""

    def check(self) -> torch.device:
        """The device; refuses what cannot be measured."""
        for name, least in (("batch", 1), ("threads", 1), ("points", 2), ("rounds", 3)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}; it is at least {least}")
        device = find_device(self.device)
        if self.clock == "cpu" and (device.type != "cpu" or self.threads > 1):
            raise ConfigError(
                f"the clock cpu tells a latency only for one thread on a CPU; this is {self.threads} on {device.type}"
            )
        check_backend(self.backend, device, self.precision, self.channels_last)
        return device

    def prepared(self, module: nn.Module, x: Tensor, *, whole: bool = False) -> Callable[[], Any]:
        """A call that runs the module on ``x`` as it is asked for.

        Single layers are not compiled: torch compiles a convolution to the call of the same library that it makes
        without compiling, and a grid of layers would take hours. What compiling gains is in the fit of the rest.
        """
        device, dtype = find_device(self.device), getattr(torch, self.precision)
        module, x = module.eval().to(device, dtype), x.to(device, dtype)
        if self.channels_last and x.dim() == 4:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            x = x.contiguous(memory_format=torch.channels_last)
        backend: Backend = "eager" if self.backend == "compile" and not whole else self.backend
        return runnable(module, x, backend, self.threads)

    def times(self, calls: Mapping[Any, Callable[[], Any]]) -> dict[Any, float]:
        """Microseconds of each call, see ``fastest``."""
        clock = time.perf_counter if self.clock == "wall" else time.process_time
        return fastest(calls, self.rounds, synchroniser(find_device(self.device)), clock)

    def described(self, device: torch.device) -> DeviceSettings:
        """For the file."""
        versions = {"rbprune": metadata.version("rbprune"), "torch": torch.__version__}
        if self.backend == "onnxruntime":
            versions["onnxruntime"] = metadata.version("onnxruntime")
        return DeviceSettings(
            device=device.type,
            processor=torch.cuda.get_device_name() if device.type == "cuda" else cpu_name(),
            backend=self.backend,
            batch=self.batch,
            threads=self.threads,
            precision=self.precision,
            channels_last=self.channels_last,
            versions=versions,
        )


def fastest(
    calls: Mapping[Any, Callable[[], Any]], rounds: int, synchronise: Callable[[], None], clock: Callable[[], float]
) -> dict[Any, float]:
    """Microseconds of each call: the lower quartile over turns, in alternating order.

    In a turn a first call, which does not count, brings weights back to where they are when the same call is made again
    and again, as it is in use.
    """
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):  # one turn to warm up
        for name in list(calls)[:: 1 if number % 2 else -1]:
            calls[name]()
            synchronise()
            count = max(1, min(TURN_CALLS, math.ceil(TURN_US / times[name][-1]))) if number else 1
            began = clock()
            for _ in range(count):
                calls[name]()
                synchronise()
            times[name].append(max(1e6 * (clock() - began) / count, 1e-3))
    return {name: sorted(own[1:])[rounds // 4] for name, own in times.items()}
