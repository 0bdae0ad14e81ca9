"""From settings to a runner: the data, the network and its weights, checked and loaded; nothing is written."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from rbprune import data, models
from rbprune.data.image import ImageLook
from rbprune.errors import ConfigError, ModelError
from rbprune.graph import Plan, apply_plan
from rbprune.logging.trackers import Tracker, make_tracker
from rbprune.measure.run_latency import make_timer
from rbprune.models.registry import is_timm
from rbprune.models.timm_models import timm_images
from rbprune.models.weights import load_weights
from rbprune.runs.folder import RunFolder
from rbprune.settings.sections import DataSettings, Settings
from rbprune.train.runner import Runner
from rbprune.train.state import RunData, RunTrackers
from rbprune.train.stream import SourceStream
from rbprune.utils.plain_file import read_plain
from rbprune.utils.processes import is_first

EVALUATION_BATCH = 250
"""Examples in a batch that is only evaluated."""


def load_data(settings: Settings) -> data.Data:
    """Load the data that the settings name."""
    return load_settings_data(settings.data)


def load_settings_data(d: DataSettings) -> data.Data:
    """Load the data that a section of settings names."""
    return data.load(
        d.name,
        d.path,
        val=d.val,
        augment=d.augment,
        workers=d.workers,
        image_size=d.image_size,
        look=_look(d),
        limit=d.limit,
        corrupt=d.corrupt,
    )


def _look(d: DataSettings) -> ImageLook:
    usual = ImageLook()
    mean = usual.mean if d.mean is None else tuple(d.mean)
    std = usual.std if d.std is None else tuple(d.std)
    return ImageLook(mean, std, d.interpolation, d.crop)


def with_images_of_model(settings: Settings) -> Settings:
    """Let images from files be as a model of timm wants them, where the settings do not say how they are."""
    if not is_timm(settings.model.name) or settings.data.name not in ("folder", "shards"):
        return settings
    found = timm_images(settings.model.name, settings.model.weights)
    open_ones = {name: value for name, value in found.items() if name not in settings.data.model_fields_set}
    return settings.model_copy(update={"data": DataSettings(**{**settings.data.model_dump(), **open_ones})})


def make_run_data(source: data.Data, seed: int) -> RunData:
    """Make streams of batches over a data set: those for training in the order of ``seed``."""

    def held_out(part: data.Source) -> SourceStream:
        return SourceStream(part, EVALUATION_BATCH, train=False)

    return RunData(
        train=lambda batch_size: SourceStream(source.train, batch_size, seed),
        val=None if source.val is None else held_out(source.val),
        test=held_out(source.test),
        skipped=source.skipped,
    )


def _with_facts(settings: Settings, source: data.Data) -> Settings:
    """Add what only the data could tell of the network, so that its run folder alone is enough to build it again."""
    facts = {
        "classes": settings.model.classes or source.classes,
        "input_shape": settings.model.input_shape or list(source.shape),
    }
    return settings.model_copy(update={"model": settings.model.model_copy(update=facts)})


def build_model(settings: Settings) -> tuple[nn.Module, Tensor]:
    """Build the network of the settings with its weights, and an example batch of zeros."""
    torch.manual_seed(settings.seed)
    assert settings.model.input_shape is not None
    chosen = settings.model
    if chosen.plan is None:
        model = models.build(chosen.name, classes=chosen.classes, weights=chosen.weights)
    else:
        model = _build_pruned(chosen.name, chosen.classes, Path(chosen.plan), chosen.weights)
    return model, torch.zeros(2, *settings.model.input_shape)


def _build_pruned(name: str, classes: int | None, plan: Path, weights: str | None) -> nn.Module:
    """The network that an earlier run left: built, cut as its plan says, and filled with its weights."""
    if weights is None:
        raise ConfigError(
            f"model.plan = {str(plan)!r} says how a network was cut, and model.weights must name its weights: the "
            "model.safetensors of the same run"
        )
    if not plan.is_file():
        raise ConfigError(f"model.plan: there is no file {str(plan.absolute())!r}; give the plan.json of a run")
    text = read_plain(plan, ConfigError).decode("utf-8", "replace")
    model = models.build(name, classes=classes)
    try:
        apply_plan(model, Plan.from_json(text))
    except ModelError as error:
        raise ModelError(f"model.plan = {str(plan)!r}: {error}") from error
    load_weights(model, weights)
    return model


def named_trackers(settings: Settings, folder: Path | None) -> list[Tracker]:
    """The tracker that the settings name, made before anything is trained; of several processes the first has it."""
    spec = settings.runtime.tracker
    return [] if spec is None or not is_first() else [make_tracker(spec, settings.model_dump(), folder)]


def make_runner(settings: Settings, run: RunFolder, console: Console | None, command: list[str]) -> Runner:
    """Make the runner that will train, prune and fine-tune as the settings say, into the folder of ``run``."""
    if settings.model.weights is None and settings.pretrain is None:
        raise ConfigError("pruning starts from a trained network: set model.weights=FILE or give a [pretrain] section")
    if settings.prune.max_error_rise is not None and settings.task == "prune":
        raise ConfigError(
            f"prune.max_error_rise = {settings.prune.max_error_rise:g} is a search of many runs, which 'rbprune prune' "
            "and rbprune.prune make; here a single run is made: give a price or a ratio instead"
        )
    settings = with_images_of_model(settings)
    source = load_data(settings)
    settings = _with_facts(settings, source)
    model, example = build_model(settings)
    data = make_run_data(source, settings.seed)
    trackers = RunTrackers(named_trackers(settings, run.path))
    runner = Runner(
        settings, model, example, data, F.cross_entropy, files=run, console=console, command=command, trackers=trackers
    )
    if settings.runtime.time:
        runner.timer = make_timer(lambda: models.build(settings.model.name, classes=settings.model.classes), example)
    return runner
