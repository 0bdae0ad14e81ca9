"""How long networks take, measured side by side in one run, so that what disturbs one disturbs all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from rbprune.errors import ConfigError
from rbprune.measure.machine import Machine, find_device, machine, synchroniser

Clock = Literal["wall", "cpu"]

WARM_UP_SECONDS = 0.3
TURN_SECONDS = 0.005
"""A network that is faster than this is called several times in a turn."""


@dataclass(frozen=True)
class Spread:
    """The middle of several measurements, and their lower and upper quartile."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing:
    """One network at one batch size: milliseconds for a forward pass, and first network / this one, round by round."""

    network: str
    batch: int
    ms: Spread
    ratio: Spread


@dataclass(frozen=True)
class Latency:
    """The result of ``latency``; ``storage`` is in bytes, ``storage_ratio`` the first network's / each one's."""

    timings: list[Timing]
    storage: dict[str, int]
    storage_ratio: dict[str, float]
    rounds: int
    clock: Clock
    channels_last: bool
    machine: Machine

    def at(self, network: str, batch: int) -> Timing:
        """The timing of one network at one batch size."""
        return next(t for t in self.timings if (t.network, t.batch) == (network, batch))

    def as_dict(self) -> dict[str, Any]:
        """All times as plain values for JSON."""
        return asdict(self)


def latency(
    networks: Mapping[str, nn.Module],
    shape: Sequence[int],
    *,
    batches: Sequence[int] = (1, 32),
    device: str = "auto",
    rounds: int = 20,
    channels_last: bool = False,
    threads: int | None = None,
    clock: Clock = "wall",
) -> Latency:
    """Time forward passes of ``networks`` on random examples of ``shape``; the first one is what ratios refer to.

    After a warm-up the networks take turns, in alternating order, for so many ``rounds``. They run in evaluation mode
    and are given back as they were. ``clock="cpu"`` counts the process's own CPU time, summed over its threads: on a
    machine that others use too it is steadier than the wall clock, but only for one thread is it a latency.

    >>> wide, narrow = nn.Conv2d(3, 64, 3), nn.Conv2d(3, 8, 3)
    >>> result = latency({"dense": wide, "pruned": narrow}, (3, 32, 32), batches=[1], device="cpu", rounds=3)
    >>> result.storage_ratio["pruned"], [(t.network, t.batch) for t in result.timings]
    (8.0, [('dense', 1), ('pruned', 1)])
    """
    check_timing(networks, shape, batches, rounds, channels_last, threads)
    where = find_device(device)
    ticks = clock_of(clock, where)
    storage = {name: storage_bytes(module) for name, module in networks.items()}
    first = storage[next(iter(storage))]
    timings: list[Timing] = []
    with ExitStack() as stack:
        stack.enter_context(threads_set(threads))
        for module in networks.values():
            stack.enter_context(borrowed(module, where, channels_last))
        found = machine(where)
        for batch in batches:
            calls = {name: _call(module, batch, shape, where, channels_last) for name, module in networks.items()}
            times = times_of(calls, rounds, synchroniser(where), ticks)
            timings += timings_of(batch, times)
    ratios = {name: first / size if size else math.nan for name, size in storage.items()}
    return Latency(timings, storage, ratios, rounds, clock, channels_last, found)


def storage_bytes(module: nn.Module) -> int:
    """Bytes of all parameters and buffers as ``model.safetensors`` holds them, without its header.

    >>> storage_bytes(nn.Linear(3, 2))
    32
    """
    return sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values())


def check_timing(
    networks: Mapping[str, nn.Module],
    shape: Sequence[int],
    batches: Sequence[int],
    rounds: int,
    channels_last: bool,
    threads: int | None,
) -> None:
    """Refuse what cannot be timed."""
    if not networks:
        raise ConfigError("there is no network to time; give at least one")
    if not batches or min(batches) < 1:
        raise ConfigError(f"batch sizes are numbers from 1 on, such as 1, 32; got {list(batches)}")
    if rounds < 1:
        raise ConfigError(f"rounds is {rounds}; measure at least 1, better 20")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}; use at least 1, or leave it out for as many as torch uses")
    if channels_last and len(shape) != 3:
        raise ConfigError(f"channels-last is for examples of three dimensions, such as 3x224x224; got {list(shape)}")


def clock_of(name: Clock, device: torch.device) -> Callable[[], float]:
    """The function that tells the time by a clock; a clock that does not fit the device is refused."""
    if name not in ("wall", "cpu") or (name == "cpu" and device.type != "cpu"):
        raise ConfigError(f"clock is wall, or cpu on the device cpu; this is {name!r} on {device}")
    return time.perf_counter if name == "wall" else time.process_time


@contextmanager
def threads_set(count: int | None) -> Iterator[None]:
    """So many threads of torch inside, or as many as it uses anyway."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def borrowed(module: nn.Module, device: torch.device, channels_last: bool) -> Iterator[None]:
    """The module in evaluation mode on the device; afterwards its very tensors are back in their places."""
    parts = [(part, part.training, dict(part._parameters), dict(part._buffers)) for part in module.modules()]
    tensors = [(parameter, parameter.data, parameter.grad) for parameter in module.parameters()]
    try:
        for parameter, _, _ in tensors:
            parameter.grad = None  # it would be moved as well
        module.eval().to(device)
        if channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        yield
    finally:
        for part, training, parameters, buffers in parts:
            part.training = training
            part._parameters.update(parameters)
            part._buffers.update(buffers)
        for parameter, data, gradient in tensors:
            parameter.data = data
            parameter.grad = gradient


def _call(
    module: nn.Module, batch: int, shape: Sequence[int], device: torch.device, channels_last: bool
) -> Callable[[], Any]:
    """A forward pass on a batch in the module's own number type."""
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    return lambda: module(x)


@torch.inference_mode()
def times_of(
    calls: Mapping[str, Callable[[], Any]], rounds: int, synchronise: Callable[[], None], clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each call in each round."""

    def turn(call: Callable[[], Any], count: int) -> float:
        synchronise()
        began = clock()
        for _ in range(count):
            call()
            synchronise()
        return max(clock() - began, 1e-9) / count  # some clocks tick seldom

    counts = {}
    for name, call in calls.items():
        began, seconds = time.perf_counter(), turn(call, 1)
        while time.perf_counter() - began < WARM_UP_SECONDS:
            seconds = min(seconds, turn(call, 1))
        counts[name] = max(1, math.ceil(TURN_SECONDS / max(seconds, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: 1 if number % 2 else -1]:
            times[name].append(turn(calls[name], counts[name]))
    return times


def timings_of(batch: int, times: Mapping[str, list[float]]) -> list[Timing]:
    """Medians and quartiles of what ``times_of`` measured, with ratios to the first network."""
    first = times[next(iter(times))]
    found = []
    for name, own in times.items():
        ratios = [reference / seconds for reference, seconds in zip(first, own, strict=True)]
        found.append(Timing(name, batch, _spread([1000 * seconds for seconds in own]), _spread(ratios)))
    return found


def _spread(values: list[float]) -> Spread:
    quarters = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    low, median, high = torch.tensor(values, dtype=torch.float64).quantile(quarters).tolist()
    return Spread(median, low, high)
