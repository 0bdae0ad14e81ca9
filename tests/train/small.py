"""Runs of a few steps, in memory: tiny_cnn on stripes, four batches of 16."""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from rbprune.pruner import Loss
from rbprune.settings.recipe import build_settings, merge
from rbprune.settings.sections import Settings
from rbprune.train.runner import Runner
from rbprune.train.state import RunData, RunFiles
from rbprune.train.stream import LoaderStream
from rbprune.utils.interrupt import Interrupted
from tests.networks import stripes, tiny_cnn

BATCH, STEPS = 16, 4


def small_settings(tables: dict[str, Any] | None = None) -> Settings:
    """Two sites in two stages of an epoch, and an epoch of fine-tuning."""
    base = {
        "model": {"name": "tiny", "weights": "given"},
        "data": {"name": "loader"},
        "prune": {
            "epochs": 1,
            "rate_lr": 0.9,
            "price": {"nats": 0.1},
            "only": ["0", "4"],
            "settle": 0,
            "confidence": 0,
            "max_rise": 100,
        },
        "finetune": {"epochs": 1},
        "runtime": {"recalibrate": 3, "threads": 1},
    }
    return build_settings(merge(base, tables or {}))


def small_stream(count: int = BATCH * STEPS) -> LoaderStream:
    """The training data, in a fixed order."""
    images, labels = stripes(count)
    return LoaderStream([(images[i : i + BATCH], labels[i : i + BATCH]) for i in range(0, count, BATCH)], count)


def small_runner(
    tables: dict[str, Any] | None = None,
    *,
    model: nn.Module | None = None,
    count: int = BATCH * STEPS,
    files: RunFiles | None = None,
    console: Console | None = None,
    loss_fn: Loss = F.cross_entropy,
    **parts: Any,
) -> Runner:
    """A runner of ``small_settings`` on a network that is always the same; ``parts`` are those of ``RunData``."""
    torch.manual_seed(0)
    stream = small_stream(count)
    data = RunData(**{"train": lambda batch_size: stream, "val": stream, **parts})
    model = tiny_cnn() if model is None else model
    console = console or Console(file=io.StringIO(), width=200)
    example = torch.zeros(2, 1, 8, 8)
    return Runner(small_settings(tables), model, example, data, loss_fn, files=files, console=console)


def run_until(runner: Runner, steps: int) -> None:
    """Train so many steps and leave the run there, with its phase in progress."""
    taken = 0

    def stop(signals: Any) -> None:
        nonlocal taken
        taken += 1
        if taken == steps:
            raise Interrupted(2, "stop")

    runner._between_steps = stop  # type: ignore[method-assign]
    try:
        runner.run()
    except Interrupted:
        return
    raise AssertionError(f"the run had only {taken} steps")
