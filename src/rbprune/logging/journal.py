"""What a run tells: events for the report, scalars for TensorBoard, lines and bars for the terminal."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.graph import ChannelGraph
from rbprune.logging.console import stage_line
from rbprune.logging.events import EventLog
from rbprune.logging.progress import Progress
from rbprune.logging.tensorboard import TensorBoard
from rbprune.methods import StageResult
from rbprune.settings.recipe import to_toml
from rbprune.settings.sections import Config
from rbprune.train.phase import PhaseRun
from rbprune.utils.numbers import score


class Journal:
    """Keeps the log of a run; ``folder`` None keeps it in memory, ``silent`` draws nothing."""

    def __init__(self, folder: Path | None, console: Console, *, silent: bool = False) -> None:
        self.log = EventLog(folder / "events.jsonl" if folder else None)
        self.board = TensorBoard(folder / "tb" if folder else None)
        self.progress = Progress(console, enabled=False if silent else None)
        self._console, self._silent = console, silent

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events so far."""
        return self.log.events

    def say(self, text: str) -> None:
        """A line for people."""
        if not self._silent:
            self.progress.log(text)

    def warn(self, message: str) -> None:
        """Something that the user should know."""
        self.log.write("warning", message=message)
        self.say(f"warning: {message}")

    def start(self, config: Config, command: list[str], graph: ChannelGraph, dataset_size: int) -> None:
        """A new run begins."""
        self.log.write(
            "start",
            version=metadata.version("rbprune"),
            command=command,
            config=config.model_dump(),
            config_toml=to_toml(config),
            model=config.model.name,
            method=config.prune.method,
            seed=config.seed,
            dataset_size=dataset_size,
            macs=graph.macs(),
            params=graph.params(),
            sites={site.name: site.original for site in graph.sites},
            layers=[asdict(layer) for layer in graph.layers()],
        )

    def resumed(self, checkpoint: str) -> None:
        """An interrupted run goes on."""
        self.log.write("resume", checkpoint=checkpoint)
        self.say(f"resuming from {checkpoint}")

    def dense(self, error: float | None) -> None:
        """The dense network is ready to be pruned."""
        self.log.write("dense", error_before=error)

    def epoch(self, current: PhaseRun, metric: str, *, val_error: float | None, cost: float) -> None:
        """An epoch is over."""
        phase, meter, stream = current.phase, current.meter, current.stream
        undecided = None
        if current.stage is not None:
            shares = current.stage.undecided()
            undecided = sum(shares.values()) / len(shares) if shares else None
        values = {
            "loss": meter.loss / meter.steps,
            "kl": meter.kl / meter.steps,
            "val_error": val_error,
            "lr": current.learning_rate(current.step - 1),
            "dense_epochs": cost,
            "images_per_second": meter.steps * stream.size / stream.steps / max(1e-9, meter.seconds),
            "undecided": undecided,
        }
        epoch, epochs = -(-current.step // stream.steps), -(-current.steps // stream.steps)
        where = {"phase": phase.kind, "stage": phase.stage, "epoch": epoch, "epochs": epochs}
        self.log.write("epoch", **where, metric=metric, seconds=meter.seconds, **values)
        self.board.scalars(len(self.events), **{f"{phase.kind}/{k}": v for k, v in values.items() if v is not None})
        if phase.stage is None:
            error = "" if val_error is None else f"  val {metric} {score(val_error, metric)}"
            self.say(f"{phase.kind} {epoch}/{epochs}  loss {values['loss']:.4f}{error}  ({meter.seconds:.0f} s)")

    def stage(
        self,
        current: PhaseRun,
        result: StageResult,
        graph: ChannelGraph,
        *,
        stages: int,
        dense: tuple[int, int],
        metric: str,
        val_error: float | None,
        seconds: float,
    ) -> None:
        """A stage is over and its channels are gone."""
        macs, params = graph.macs(), graph.params()
        event = self.log.write(
            "stage",
            stage=current.phase.stage,
            stages=stages,
            sites=list(result.channels),
            channels={name: list(pair) for name, pair in result.channels.items()},
            diagnostic=result.diagnostic,
            values={name: [round(v, 5) for v in value.tolist()] for name, value in result.values.items()},
            undecided=result.undecided,
            price={name: list(pair) for name, pair in result.price.items()},
            epochs=current.step / current.stream.steps,
            settled=current.settled,
            guarded=result.guarded,
            notes=result.notes,
            macs=macs,
            params=params,
            macs_ratio=dense[0] / macs,
            params_ratio=dense[1] / params,
            val_error=val_error,
            metric=metric,
            seconds=seconds,
        )
        self.board.values(current.phase.number, result.diagnostic, result.values)
        self.say(stage_line(event))

    def done(self, summary: dict[str, Any], graph: ChannelGraph) -> None:
        """The run is complete."""
        self.log.write("done", summary=summary, layers=[asdict(layer) for layer in graph.layers()])


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("rbprune", "torch", "lightning-fabric", "numpy", "safetensors")
    found = {name: metadata.version(name) for name in names}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}
