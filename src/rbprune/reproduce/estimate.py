"""What an experiment will cost, before it starts: epochs, steps, MACs and time on this machine, for each phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch.nn.functional as F

from rbprune import models
from rbprune.errors import RbpruneError
from rbprune.pruner import Pruner
from rbprune.reproduce.calibrate import seconds_per_image
from rbprune.reproduce.experiments import Experiment, check_overrides
from rbprune.runs.build import load_data
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from rbprune.train.budget import (
    check_cost,
    epoch_cost,
    observation_cost,
    recalibration_cost,
    stage_length,
    with_budget,
)

ILSVRC_IMAGES = 1_281_167
USUAL_IMAGES = {"cifar10": 50_000, "mnist": 60_000, "folder": ILSVRC_IMAGES, "shards": ILSVRC_IMAGES}
USUAL_SHAPES = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}
FORWARDS_PER_STEP = 3
"""Forward passes that a training step amounts to."""


@dataclass(frozen=True)
class PhaseEstimate:
    """What one phase of one run will cost at most.

    Epochs are dense ones and contain what a teacher, methods that observe data and the checks of cuts compute. Epochs,
    steps, MACs and seconds are upper bounds: stages that settle end early, and the network shrinks on the way. Only the
    steps of a fine-tuning under a budget are not: the smaller the network, the more of them fit in.
    """

    run: str
    phase: str
    epochs: float
    steps: int
    macs: float
    seconds: float


@dataclass(frozen=True)
class DataNeeds:
    """Data that an experiment reads: how much of it is there, or what is missing."""

    name: str
    images: int
    shape: tuple[int, ...]
    found: bool
    note: str


def find_data(settings: Settings) -> DataNeeds:
    """Look for the data of a run; what is not there is taken to have its usual size."""
    name = settings.data.name
    try:
        data = load_data(settings)
    except RbpruneError as error:
        images = max(1, USUAL_IMAGES.get(name, 0) - settings.data.val)
        size = settings.data.image_size
        shape = USUAL_SHAPES.get(name, (3, size, size))
        return DataNeeds(name, min(images, settings.data.limit or images), shape, False, str(error))
    found = f"found {len(data.train):,} training images"
    return DataNeeds(
        name, len(data.train), data.shape, True, f"{found} in {settings.data.path}" if settings.data.path else found
    )


def estimate(experiment: Experiment, overrides: Sequence[str]) -> tuple[list[PhaseEstimate], list[DataNeeds]]:
    """The cost of every phase of every run, and the data they need."""
    costs: list[PhaseEstimate] = []
    found: dict[str, DataNeeds] = {}
    speeds: dict[str, float] = {}
    trained: set[str] = set()
    check_overrides(experiment, overrides)
    for run in experiment.runs:
        unknown = ["prune.macs_ratio=2"] if run.same_macs else []  # how far it will be cut hardly changes what it costs
        settings = load_recipe(run.recipe, [*run.overrides, *overrides, *unknown])
        if run.recipe not in found:
            found[run.recipe] = find_data(settings)
        need = found[run.recipe]
        model, size = models.build(settings.model.name, classes=settings.model.classes), need.images
        shape = tuple(settings.model.input_shape or need.shape)
        example = models.example_input(settings.model.name, model, shape)
        pruner = Pruner(model, example, dataset_size=size, loss_fn=F.cross_entropy, settings=settings.prune)
        if run.recipe not in speeds:
            speeds[run.recipe] = seconds_per_image(settings, model, example, macs=pruner.graph.macs())
        pretrained = settings.model.weights is not None or run.recipe in trained
        for phase in _phases(settings, pruner, size, pretrained):
            images = phase.dense_epochs * size
            macs = FORWARDS_PER_STEP * phase.dense_epochs * size * pruner.graph.macs()
            steps = round(phase.epochs * -(-size // phase.batch))
            name = f"{run.recipe}-dense" if phase.name == "pretrain" else run.name
            costs.append(PhaseEstimate(name, phase.name, phase.dense_epochs, steps, macs, images * speeds[run.recipe]))
        trained.add(run.recipe)
    return costs, list(dict.fromkeys(found.values()))


class _PlannedPhase(NamedTuple):
    name: str
    epochs: float
    """Epochs in which the network trains, at most."""
    dense_epochs: float
    """All that is computed."""
    batch: int


def _phases(settings: Settings, pruner: Pruner, size: int, pretrained: bool) -> Iterator[_PlannedPhase]:
    if settings.pretrain is not None and not pretrained:
        yield _PlannedPhase(
            "pretrain", settings.pretrain.epochs, settings.pretrain.epochs, settings.pretrain.batch_size
        )
    method, stages, steps = pruner.method.stage, len(pruner), -(-size // settings.prune.batch_size)
    settings = settings.model_copy(update={"prune": settings.prune.with_epochs(steps)})
    settings = with_budget(settings, pruner, lambda batch_size: -(-size // batch_size))
    prune, tune = settings.prune, settings.finetune

    def cost(own: int) -> float:
        return epoch_cost(1, taught=prune.distill > 0, overhead=method.step_overhead(pruner.settings, own))

    each = stage_length(prune.length, stages, settings.budget, cost, steps=steps, share=settings.pruning_share)
    epochs, epoch = stages * each, cost(round(each * steps))
    looks = observation_cost(method, prune.observe, steps) + recalibration_cost(settings, pruner, steps)
    pruning = epochs * epoch + stages * (looks + check_cost(steps))
    yield _PlannedPhase(f"prune, {stages} stage{'s' if stages > 1 else ''}", epochs, pruning, prune.batch_size)
    epoch = epoch_cost(1, taught=tune.distill > 0)
    dense = tune.length * epoch if settings.budget is None else max(0.0, settings.budget - pruning)
    yield _PlannedPhase("fine-tune", dense / epoch, dense, tune.batch_size)
