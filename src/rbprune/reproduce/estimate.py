"""What an experiment will cost, before it starts: steps, MACs, and time on this machine from a few real steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rbprune import models
from rbprune.errors import RbpruneError
from rbprune.measure.machine import synchroniser
from rbprune.pruner import Pruner
from rbprune.reproduce.experiments import Experiment, check_overrides
from rbprune.runs.build import load_data
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Config
from rbprune.train.budget import epoch_cost, forward_cost, observation_cost, stage_epochs
from rbprune.train.engine import Engine
from rbprune.train.optim import make_optimizer
from rbprune.train.runner import make_pruner

ILSVRC_IMAGES = 1_281_167
SIZES = {"cifar10": 50_000, "mnist": 60_000, "folder": ILSVRC_IMAGES, "shards": ILSVRC_IMAGES}
SHAPES = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}
TRAINING = 3
"""Forward passes that a training step amounts to."""
PIXELS, FEWEST = 128 * 32 * 32, 8
"""A calibrating batch has at most so many, so that it takes seconds rather than a minute; but so many images."""
CALIBRATION_SECONDS = 5.0


@dataclass(frozen=True)
class Cost:
    """One phase of one run. Epochs (dense ones, with what a teacher and observing methods compute), steps, MACs and
    seconds are upper bounds: stages that settle end early, and the network shrinks on the way. Only the steps of a
    fine-tuning under a budget are not: the smaller the network, the more of them fit in."""

    run: str
    phase: str
    epochs: float
    steps: int
    macs: float
    seconds: float


@dataclass(frozen=True)
class Needs:
    """Data that an experiment reads: what is there, or what is missing."""

    name: str
    images: int
    shape: tuple[int, ...]
    found: bool
    note: str


def needs(config: Config) -> Needs:
    """Look for the data of a run."""
    name = config.data.name
    try:
        data = load_data(config)
    except RbpruneError as error:
        images = max(1, SIZES.get(name, 0) - config.data.val)
        size = config.data.image_size
        shape = SHAPES.get(name, (3, size, size))
        return Needs(name, min(images, config.data.limit or images), shape, False, str(error))
    found = f"found {len(data.train):,} training images"
    return Needs(
        name, len(data.train), data.shape, True, f"{found} in {config.data.path}" if config.data.path else found
    )


def estimate(experiment: Experiment, overrides: Sequence[str]) -> tuple[list[Cost], list[Needs]]:
    """The cost of every phase of every run, and the data they need."""
    costs: list[Cost] = []
    found: dict[str, Needs] = {}
    speeds: dict[str, float] = {}
    trained: set[str] = set()
    check_overrides(experiment, overrides)
    for work in experiment.works:
        config = load_recipe(work.recipe, [*work.overrides, *overrides])
        if work.recipe not in found:
            found[work.recipe] = needs(config)
        need = found[work.recipe]
        model, size = models.build(config.model.name, classes=config.model.classes), need.images
        shape = tuple(config.model.input_shape or need.shape)
        example = models.example_input(config.model.name, model, shape)
        if work.recipe not in speeds:
            speeds[work.recipe] = seconds_per_image(config, model, example)
        pruner = make_pruner(config.prune, model, example, size)
        pretrained = config.model.weights is not None or work.recipe in trained
        for phase in _phases(config, pruner, size, pretrained):
            images, macs = phase.dense_epochs * size, TRAINING * phase.dense_epochs * size * pruner.graph.macs()
            steps = round(phase.epochs * -(-size // phase.batch))
            name = f"{work.recipe}-dense" if phase.name == "pretrain" else work.name
            costs.append(Cost(name, phase.name, phase.dense_epochs, steps, macs, images * speeds[work.recipe]))
        trained.add(work.recipe)
    return costs, list(dict.fromkeys(found.values()))


class _Phase(NamedTuple):
    name: str
    epochs: float
    """In which the network trains, at most."""
    dense_epochs: float
    """All that is computed."""
    batch: int


def _phases(config: Config, pruner: Pruner, size: int, pretrained: bool) -> Iterator[_Phase]:
    prune, tune, budget, stages = config.prune, config.finetune, config.budget, len(pruner)
    if config.pretrain is not None and not pretrained:
        yield _Phase("pretrain", config.pretrain.epochs, config.pretrain.epochs, config.pretrain.batch_size)
    method, steps = pruner.method.stage, -(-size // prune.batch_size)
    epoch = epoch_cost(1, taught=prune.distill > 0, beside=method.beside(pruner.settings))
    epochs = stages * stage_epochs(prune.epochs, stages, budget, epoch)
    looks = observation_cost(method, prune.observe, steps)
    if any(isinstance(module, _BatchNorm) for module in pruner.model.modules()):
        looks += forward_cost(config.runtime.recalibrate, steps)
    pruning = epochs * epoch + stages * looks
    yield _Phase(f"prune, {stages} stage{'s' if stages > 1 else ''}", epochs, pruning, prune.batch_size)
    epoch = epoch_cost(1, taught=tune.distill > 0)
    dense = tune.epochs * epoch if budget is None else max(0.0, budget - pruning)
    yield _Phase("fine-tune", dense / epoch, dense, tune.batch_size)


def seconds_per_image(config: Config, model: nn.Module, example: Tensor) -> float:
    """Time of a training step on this machine, per image: the fastest of a few, in the precision of the run.

    The optimizer's part does not depend on the batch, and is shared among the images of the run's own batches.
    """
    engine = Engine(config.runtime)
    batch = min(config.prune.batch_size, max(FEWEST, PIXELS // example[0, 0].numel()))
    inputs = torch.randn(batch, *example.shape[1:])
    with engine.threads(), torch.random.fork_rng(devices=[]):
        engine.place(model)
        optimizer = make_optimizer(config.finetune, model.parameters())
        module, (ready,) = engine.setup(model.train(), optimizer)
        inputs, targets = engine.put((inputs, torch.zeros(batch, dtype=torch.long)))
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
    return compute / batch + step / config.prune.batch_size
