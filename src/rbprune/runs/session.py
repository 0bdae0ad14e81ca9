"""A run as a folder: built from settings, started, resumed, finished."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from rbprune import data, models
from rbprune.errors import CheckpointError, ConfigError
from rbprune.logging.events import read_events
from rbprune.report.html import write_report
from rbprune.runs.artifact import save_model
from rbprune.settings.recipe import build_config, read_toml, to_toml
from rbprune.settings.sections import Config
from rbprune.train.checkpoint import load_checkpoint
from rbprune.train.runner import CHECKPOINTS, Runner
from rbprune.train.state import Feed
from rbprune.train.stream import SourceStream
from rbprune.utils.files import write_atomic
from rbprune.utils.interrupt import Interrupted

EVALUATION_BATCH = 250


def load_data(config: Config) -> data.Data:
    """The data that the settings name."""
    d = config.data
    return data.load(
        d.name,
        d.path,
        val=d.val,
        augment=d.augment,
        workers=d.workers,
        image_size=d.image_size,
        limit=d.limit,
        corrupt=d.corrupt,
    )


def make_feed(source: data.Data, seed: int) -> Feed:
    """Streams over a data set: training batches in the order of ``seed``."""

    def held_out(part: data.Source) -> SourceStream:
        return SourceStream(part, EVALUATION_BATCH, train=False)

    return Feed(
        train=lambda batch_size: SourceStream(source.train, batch_size, seed),
        val=None if source.val is None else held_out(source.val),
        test=held_out(source.test),
        skipped=source.skipped,
    )


def _with_facts(config: Config, source: data.Data) -> Config:
    """What only the data could tell of the network, so that its run folder alone is enough to build it again."""
    facts = {
        "classes": config.model.classes or source.classes,
        "input_shape": config.model.input_shape or list(source.shape),
    }
    return config.model_copy(update={"model": config.model.model_copy(update=facts)})


def build_model(config: Config) -> tuple[nn.Module, Tensor]:
    """The network of the settings with its weights, and an example batch."""
    torch.manual_seed(config.seed)
    assert config.model.input_shape is not None
    model = models.build(config.model.name, classes=config.model.classes, weights=config.model.weights)
    return model, torch.zeros(2, *config.model.input_shape)


def make_runner(config: Config, folder: Path, console: Console | None, command: list[str]) -> Runner:
    """Everything checked and loaded, nothing written yet."""
    if config.model.weights is None and config.pretrain is None:
        raise ConfigError("pruning starts from a trained network: set model.weights=FILE or give a [pretrain] section")
    source = load_data(config)
    config = _with_facts(config, source)
    model, example = build_model(config)
    feed = make_feed(source, config.seed)
    return Runner(config, model, example, feed, F.cross_entropy, folder=folder, console=console, command=command)


def start(
    config: Config, folder: Path, *, console: Console | None = None, command: list[str] | None = None
) -> dict[str, Any]:
    """Run ``config`` into a new folder; returns the summary."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} exists and is not empty; choose another --out, or go on with 'rbprune resume {folder}'"
        )
    runner = make_runner(config, folder, console, command or [])
    runner.engine.wait()  # all have found the folder empty
    if runner.engine.main:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.toml", to_toml(runner.config))
    return complete(runner, folder)


def resume(folder: Path, *, console: Console | None = None, command: list[str] | None = None) -> dict[str, Any]:
    """Go on from the last whole checkpoint; a finished run only gives its summary."""
    if not (folder / "config.toml").is_file():
        raise CheckpointError(f"{folder} is no run folder (it has no config.toml); start one with 'rbprune prune'")
    if (folder / "summary.json").is_file():
        return json.loads((folder / "summary.json").read_text())
    config = build_config(read_toml(folder / "config.toml"), where=str(folder / "config.toml"), applied=True)
    runner = make_runner(config, folder, console, command or [])
    main = runner.engine.main
    if not any((folder / CHECKPOINTS).glob("ckpt-*")):  # killed before the first one was whole
        runner.engine.wait()
        if main:
            (folder / "events.jsonl").unlink(missing_ok=True)
        return complete(runner, folder)
    checkpoint, path, damaged = load_checkpoint(folder / CHECKPOINTS)
    if main:
        _forget_events_after(folder / "events.jsonl", checkpoint.values["events"])
    runner.restore(checkpoint, path.name, damaged)
    runner.engine.wait()  # all have read it, before it makes room for the next
    return complete(runner, folder)


def _forget_events_after(path: Path, count: int) -> None:
    """What was logged after the checkpoint will happen again."""
    kept = read_events(path)[:count]
    write_atomic(path, "".join(json.dumps(event) + "\n" for event in kept))


def complete(runner: Runner, folder: Path) -> dict[str, Any]:
    """Run to the end and write the results; ``summary.json`` comes last, as the sign that all is there.

    The checkpoints have served their purpose then, and go.
    """
    summary = runner.run()
    if runner.engine.main:
        save_model(folder, runner.model, runner.graph.plan())
        write_report(folder / "report.html", events=folder / "events.jsonl", settings=folder / "config.toml")
        write_atomic(folder / "summary.json", json.dumps(summary, indent=2))
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    runner.engine.wait()  # whoever asks for the summary next will find it
    if runner.asked_to_stop is not None:
        raise Interrupted(runner.asked_to_stop, f"interrupted at its end; the run in {folder} is complete")
    return summary
