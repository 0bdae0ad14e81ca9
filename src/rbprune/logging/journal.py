"""What a run tells: events for the report, scalars for TensorBoard, lines and bars for the terminal."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.graph import ChannelGraph
from rbprune.graph.cost import known_costs
from rbprune.logging.console import stage_line
from rbprune.logging.events import EventLog
from rbprune.logging.progress import Progress
from rbprune.logging.tensorboard import TensorBoard
from rbprune.logging.trackers import Tracker, TrackerGroup
from rbprune.methods import Price, StageResult
from rbprune.methods.cut import CutReport
from rbprune.settings.recipe import to_toml
from rbprune.settings.sections import Settings
from rbprune.utils.numbers import score


@dataclass(frozen=True)
class EpochRecord:
    """What there is to tell of one epoch. ``metric`` is the unit of ``val_error``, ``dense_epochs`` the cost so far."""

    phase: str
    stage: int | None
    epoch: int
    epochs: int
    loss: float
    kl: float
    lr: float
    seconds: float
    images_per_second: float
    undecided: float | None
    metric: str
    val_error: float | None
    dense_epochs: float


@dataclass(frozen=True)
class StageRecord:
    """What there is to tell of one stage beside its result; ``number`` counts the phases of the run."""

    number: int
    stage: int
    stages: int
    epochs: float
    settled: bool
    seconds: float
    metric: str
    val_error: float | None
    correction: float = 1.0
    """What the forecast is multiplied by, learnt from the stages before."""
    dense_loss: float | None = None
    """The training loss of the dense network, in nats per example."""


class Journal:
    """Keeps the log of a run. Without ``events`` it stays in memory; ``silent`` draws nothing.

    ``trackers`` are handed every event, and closed at the end; ``lent_trackers`` are not closed.
    """

    def __init__(
        self,
        console: Console,
        *,
        events: Path | None = None,
        tensorboard: Path | None = None,
        silent: bool = False,
        trackers: Sequence[Tracker] = (),
        lent_trackers: Sequence[Tracker] = (),
    ) -> None:
        self.log = EventLog(events)
        self.board = TensorBoard(tensorboard)
        self.progress = Progress(console, enabled=False if silent else None)
        self._console, self._silent = console, silent
        self.trackers = TrackerGroup(trackers, lent_trackers, self.warn)
        self.log.listen = self.trackers.log

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events so far."""
        return self.log.events

    def close(self) -> None:
        """The run is over: nobody is told anything any more."""
        self.board.close()
        self.trackers.close()

    def say(self, text: str) -> None:
        """A line for people."""
        if not self._silent:
            self.progress.log(text)

    def warn(self, message: str) -> None:
        """Something that the user should know."""
        self.log.write("warning", message=message)
        self.say(f"warning: {message}")

    def start(
        self,
        settings: Settings,
        command: list[str],
        graph: ChannelGraph,
        dataset_size: int,
        stages: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """A new run begins; ``stages`` are the sites, or branches, that each of its stages will judge, by name."""
        self.log.write(
            "start",
            version=metadata.version("rbprune"),
            command=command,
            config=settings.model_dump(),
            config_toml=to_toml(settings),
            model=settings.model.name,
            method=settings.prune.method,
            seed=settings.seed,
            dataset_size=dataset_size,
            **{name: cost.total(graph) for name, cost in known_costs(graph).items()},
            sites={site.name: site.original for site in graph.sites},
            stages=stages if settings.task == "prune" else [],
            layers=[asdict(layer) for layer in graph.layers()],
        )

    def precision(self, *, arithmetic: str, why: str, warnings: Iterable[str], **fields: Any) -> None:
        """What a new run computes in, and why; ``warnings`` are for what may be a mistake."""
        self.log.write("precision", arithmetic=arithmetic, why=why, **fields)
        self.say(f"precision: {arithmetic} ({why})")
        for message in warnings:
            self.warn(message)

    def resumed(self, checkpoint: str, *, warnings: Iterable[str] = ()) -> None:
        """An interrupted run goes on; ``warnings`` tell, for one, of newer checkpoints that could not be read."""
        for text in warnings:
            self.warn(text)
        self.log.write("resume", checkpoint=checkpoint)
        self.say(f"resuming from {checkpoint}")

    def dense(
        self,
        error: float | None,
        loss: float | None,
        explained: float | None,
        price: Price | None,
        val_error: float | None = None,
    ) -> None:
        """The dense network is ready to be pruned: its error on the test and on the validation data, its training loss
        and what it explains, in nats per example, and the price that follows from it where none was given."""
        shown = None if price is None else price.model_dump(exclude_none=True)
        errors = {"error_before": error, "val_error_before": val_error}
        self.log.write("dense", **errors, loss=loss, explained=explained, price=shown)

    def epoch(self, record: EpochRecord) -> None:
        """An epoch is over."""
        self.log.write("epoch", **asdict(record))
        shown = ("loss", "kl", "val_error", "lr", "dense_epochs", "images_per_second", "undecided")
        self.board.scalars(len(self.events), **{f"{record.phase}/{name}": getattr(record, name) for name in shown})
        if record.stage is None:
            error = (
                "" if record.val_error is None else f"  val {record.metric} {score(record.val_error, record.metric)}"
            )
            where = f"{record.phase} {record.epoch}/{record.epochs}"
            self.say(f"{where}  loss {score(record.loss, 'loss')}{error}  ({record.seconds:.0f} s)")

    def stage(self, record: StageRecord, result: StageResult, graph: ChannelGraph, dense: dict[str, float]) -> None:
        """A stage is over and its channels are gone; ``dense`` is what the dense network costs, by name of the cost."""
        costs = {name: cost.total(graph) for name, cost in known_costs(graph).items()}
        event = self.log.write(
            "stage",
            stage=record.stage,
            stages=record.stages,
            sites=list(result.channels),
            channels={name: list(pair) for name, pair in result.channels.items()},
            diagnostic=result.diagnostic,
            values={name: [round(v, 5) for v in value.tolist()] for name, value in result.values.items()},
            undecided=result.undecided,
            price={name: list(pair) for name, pair in result.price.items()},
            epochs=record.epochs,
            settled=record.settled,
            guarded=result.guarded,
            notes=result.notes,
            **_of_cut(result.cut, record),
            **costs,
            **{f"{name}_ratio": dense[name] / now for name, now in costs.items()},
            val_error=record.val_error,
            metric=record.metric,
            seconds=record.seconds,
            records={name: judged.to_dict() for name, judged in result.records.items()},
        )
        self.board.values(record.number, result.diagnostic, result.values)
        self.say(stage_line(event))

    def done(self, summary: dict[str, Any], graph: ChannelGraph) -> None:
        """The run is complete."""
        self.log.write("done", summary=summary, layers=[asdict(layer) for layer in graph.layers()])


def _of_cut(cut: CutReport, record: StageRecord) -> dict[str, Any]:
    """What a stage's event says of the loss, in nats per example; ``rise`` is since the dense network."""
    rise = None if cut.loss is None or record.dense_loss is None else cut.loss - record.dense_loss
    return {
        "forecast": None if cut.forecast is None else cut.forecast * record.correction,
        "correction": record.correction,
        "measured": cut.measured,
        "measured_error": cut.error,
        "rise": rise,
        "taken_back": cut.asked - cut.gone,
        "restored": cut.restored,
    }


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("rbprune", "torch", "lightning-fabric", "numpy", "safetensors")
    found = {name: metadata.version(name) for name in names}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}
