"""How long a training step takes on this machine, from a few real ones."""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.measure.machine import synchroniser
from rbprune.settings.sections import Settings
from rbprune.train.optim import make_optimizer
from rbprune.train.precision import decide_engine

MOST_PIXELS, FEWEST_IMAGES = 128 * 32 * 32, 8
"""A batch to calibrate with has at most so many pixels, to take seconds and not a minute, but so many images."""
CALIBRATION_SECONDS = 5.0
"""No further step is timed after so long."""


def seconds_per_image(settings: Settings, model: nn.Module, example: Tensor, *, macs: float) -> float:
    """Time a training step per image: the fastest of a few, on this machine, in the precision of the run.

    ``macs`` are those of one image; they say whether a precision that is "auto" has to be measured first, as the run
    will do. The optimizer's part does not depend on the batch, and is shared among the images of the run's own batches.
    """
    batch = min(settings.prune.batch_size, max(FEWEST_IMAGES, MOST_PIXELS // example[0, 0].numel()))
    with torch.random.fork_rng(devices=[]):
        data = torch.randn(batch, *example.shape[1:]), torch.zeros(batch, dtype=torch.long)
        engine, _ = decide_engine(settings.runtime, model, lambda: data, F.cross_entropy, macs=macs * batch)
    with engine.threads(), torch.random.fork_rng(devices=[]):
        engine.place(model)
        optimizer = make_optimizer(settings.finetune, model.parameters())
        module, (ready,) = engine.setup(model.train(), optimizer)
        inputs, targets = engine.put(data)
        synchronise = synchroniser(engine.fabric.device)
        times: list[tuple[float, float]] = []
        began = time.monotonic()
        while len(times) < 2 or (len(times) < 10 and time.monotonic() - began < CALIBRATION_SECONDS):
            start = time.perf_counter()
            ready.zero_grad()
            loss = F.cross_entropy(module(inputs), targets)
            engine.backward(loss)
            synchronise()
            computed = time.perf_counter()
            ready.step()
            synchronise()
            times.append((computed - start, time.perf_counter() - computed))
    compute, step = (min(part) for part in zip(*times, strict=True))
    return compute / batch + step / settings.prune.batch_size
