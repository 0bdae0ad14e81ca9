"""The latency of a run's network before and after, measured at its end (``runtime.time``)."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from rbprune.errors import first_line
from rbprune.measure.latency import borrowed, times_of, timings_of
from rbprune.measure.machine import machine, synchroniser
from rbprune.train.state import Timer
from rbprune.utils.inputs import Arguments, arguments, call

ROUNDS = 20


def make_timer(make_dense: Callable[[], nn.Module], example_inputs: Any) -> Timer:
    """A function that times a pruned network against the dense one, one example at a time.

    The weights of the dense network do not matter. A run is not lost because its network cannot be timed: that is a
    warning.
    """

    def timer(pruned: nn.Module, warn: Callable[[str], None]) -> dict[str, Any] | None:
        try:
            return time_pair(make_dense(), pruned, example_inputs)
        except Exception as error:
            warn(f"the latency could not be measured: {type(error).__name__}: {first_line(error)}")
            return None

    return timer


@torch.inference_mode()
def time_pair(dense: nn.Module, pruned: nn.Module, example_inputs: Any) -> dict[str, Any]:
    """Milliseconds of a forward pass of both, in turns, on the device of the pruned one and in PyTorch as it is."""
    device = next((parameter.device for parameter in pruned.parameters()), torch.device("cpu"))
    inputs = _one_example(example_inputs, device)
    size = next((leaf.shape[0] for leaf in tree_leaves(tuple(inputs)) if isinstance(leaf, Tensor) and leaf.dim()), 1)
    plain = copy.deepcopy(pruned).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    with borrowed(dense, device, False), borrowed(plain, device, False):
        calls = {"dense": lambda: call(dense, inputs), "pruned": lambda: call(plain, inputs)}
        times = times_of(calls, ROUNDS, synchroniser(device), time.perf_counter)
    before, after = timings_of(size, times)
    return {
        "batch": size,
        "dense_ms": before.ms.median,
        "pruned_ms": after.ms.median,
        "ratio": after.ratio.median,
        "machine": str(machine(device)),
    }


def _one_example(inputs: Any, device: torch.device) -> Arguments:
    """A single tensor is cut down to its first example; inputs of another kind stay as they are."""
    if isinstance(inputs, Tensor):
        return Arguments((inputs[:1].to(device),), {})
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, arguments(inputs))
