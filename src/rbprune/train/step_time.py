"""How long a training step takes in one arithmetic or another, measured without a trace: all stays as it was."""

from __future__ import annotations

import copy
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.pruner import Loss
from rbprune.train.engine import Engine
from rbprune.train.stream import Batch
from rbprune.utils.inputs import call

ROUNDS = 3
"""Timed steps of each candidate, taken in turns after a first step that does not count."""
CLEARLY, CLEARLY_AT_FIRST = 1.5, 3.0
"""A candidate so many times slower than the first one is given up, or, in the step that does not count, so many."""
MOST_SECONDS = 20.0
"""No further round begins after so long."""
CPU_MACS, FEWEST_EXAMPLES = 10e9, 8
"""On a CPU the batch is made smaller down to so much work, but not below so many examples: the ratios stay about the
same, and a step of a large network takes seconds instead of a minute."""

Mode = tuple[torch.dtype | None, bool]
"""The type of mixed precision (None: not mixed), and whether the memory is channels-last."""


@dataclass
class StepTimer:
    """Times training steps (forward, loss, backward) of a copy of the model in different modes, in turns."""

    model: nn.Module
    inputs: Any
    targets: Any
    loss_fn: Loss
    device: torch.device
    times: dict[Mode, list[float]] = field(default_factory=dict)

    def measure(self, modes: Sequence[Mode]) -> list[float | None]:
        """The median seconds of each mode; None where it fails or is clearly slower than the first one.

        What the first mode raises is raised.
        """
        plain, began = modes[0], time.monotonic()
        first = {mode: self.try_step(mode, needed=mode == plain) for mode in modes}
        alive = [mode for mode in modes if first[mode] <= CLEARLY_AT_FIRST * first[plain]]
        self.times = {mode: [] for mode in alive}
        for number in range(ROUNDS):
            if number and time.monotonic() - began > MOST_SECONDS:
                break
            for mode in alive:
                self.times[mode].append(self.try_step(mode, needed=True))
            alive = [mode for mode in alive if min(self.times[mode]) <= CLEARLY * min(self.times[plain])]
        return [statistics.median(self.times[mode]) if mode in alive else None for mode in modes]

    def try_step(self, mode: Mode, *, needed: bool) -> float:
        """The seconds of one step; infinite where it fails, unless it is needed."""
        try:
            return self.step(mode)
        except Exception:
            if needed:
                raise
            return float("inf")

    def step(self, mode: Mode) -> float:
        """Make one step as Lightning Fabric makes it, and return its seconds."""
        mixed, channels_last = mode
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model.to(memory_format=layout)  # type: ignore[call-overload]
        inputs = tree_map_only(Tensor, lambda t: t.contiguous(memory_format=layout) if t.dim() == 4 else t, self.inputs)
        _synchronise(self.device)
        began = time.perf_counter()
        with torch.autocast(self.device.type, mixed, enabled=mixed is not None):
            outputs = call(self.model, inputs)
        outputs = tree_map_only(Tensor, lambda t: t.float() if t.dtype == mixed else t, outputs)
        self.loss_fn(outputs, self.targets).backward()
        _synchronise(self.device)
        taken = time.perf_counter() - began
        self.model.zero_grad(set_to_none=True)
        return taken


def time_steps(
    model: nn.Module, batch: Callable[[], Batch], loss_fn: Loss, modes: Sequence[Mode], engine: Engine, *, macs: float
) -> list[float | None]:
    """The median seconds of a training step in each mode, on a copy of the model; see ``StepTimer.measure``.

    ``batch`` gives what to train on, and ``macs`` are those of its forward pass. Generators of random numbers are put
    back.
    """
    device = engine.fabric.device
    with generators_kept(device):
        inputs, targets = engine.put(batch(), share=True)
        if device.type == "cpu":
            inputs, targets = _smaller((inputs, targets), share=CPU_MACS / macs * engine.world)
        return StepTimer(copy.deepcopy(model).to(device).train(), inputs, targets, loss_fn, device).measure(modes)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Inside, random numbers may be drawn from every global generator; afterwards they are where they were."""
    python, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(of_numpy)


def _smaller(batch: Batch, share: float) -> Batch:
    """This share of the examples of a batch, where it is less than all of them."""
    rows = max((len(t) for t in tree_leaves(batch[0]) if isinstance(t, Tensor) and t.dim()), default=0)
    kept = max(FEWEST_EXAMPLES, int(share * rows))
    inputs, targets = tree_map_only(Tensor, lambda t: t[:kept] if t.dim() and len(t) == rows else t, tuple(batch))
    return inputs, targets


def _synchronise(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
