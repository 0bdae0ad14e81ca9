"""A whole run: pretraining where asked for, stages of inference, fine-tuning; checkpointed and logged."""

from __future__ import annotations

import copy
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from rbprune.artifact import state_tensors
from rbprune.config import Config
from rbprune.data.order import mix
from rbprune.pruner import Pruner
from rbprune.recipe import to_toml
from rbprune.report.console import stage_line
from rbprune.report.events import EventLog
from rbprune.report.progress import Progress
from rbprune.report.tensorboard import TensorBoard
from rbprune.train.checkpoint import Checkpoint, save_checkpoint
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from rbprune.train.interrupt import Interrupted, Signals
from rbprune.train.objective import Loss
from rbprune.train.phase import Kind, Phase, PhaseRun
from rbprune.train.stream import Stream

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Feed:
    """The data of a run; only ``train`` and ``val`` are ever looked at for a choice."""

    train: Callable[[int], Stream]
    val: Stream | None = None
    test: Stream | None = None


@dataclass
class State:
    """What a run knows about itself between two steps, as plain values."""

    phase: int = 0
    error_before: float | None = None
    cost: dict[Kind, float] = field(default_factory=lambda: {"pretrain": 0.0, "prune": 0.0, "finetune": 0.0})
    seconds: float = 0.0
    undecided: dict[str, float] = field(default_factory=dict)
    guarded: list[str] = field(default_factory=list)
    val_error: float | None = None
    started: bool = False


class Runner:
    """Runs the phases of ``config`` on ``model``, in place. ``folder`` None keeps everything in memory."""

    def __init__(
        self,
        config: Config,
        model: nn.Module,
        example_inputs: Any,
        feed: Feed,
        loss_fn: Loss,
        *,
        folder: Path | None = None,
        console: Console | None = None,
        command: list[str] | None = None,
    ) -> None:
        self.config, self.model, self.feed, self.loss_fn, self.folder = config, model, feed, loss_fn, folder
        self.command = command or []
        prune = config.prune
        self.dataset_size = feed.train(prune.batch_size).size
        self.pruner = Pruner(
            model,
            example_inputs,
            dataset_size=self.dataset_size,
            method=prune.method,
            price=prune.price.price(),
            noise=prune.noise,
            threshold=prune.threshold,
            rate_init=prune.rate_init,
            keep=prune.keep,
            only=prune.only,
        )
        self.graph = self.pruner.graph
        self.dense = (self.graph.macs(), self.graph.params())
        self.dense_layers = [asdict(layer) for layer in self.graph.layers()]
        self.engine = Engine(config.runtime)
        self.phases = self._phases()
        self.state = State()
        self.teacher: nn.Module | None = None
        self.console = console or Console(stderr=True)
        self.log = EventLog(None)
        self._current: PhaseRun | None = None
        self._pending: Checkpoint | None = None
        self._saved = self._clock = time.monotonic()
        self._notes: list[tuple[str, dict[str, Any]]] = []

    def _phases(self) -> list[Phase]:
        config, phases = self.config, []
        if config.pretrain is not None and config.model.weights is None:
            phases.append(Phase(0, "pretrain", config.pretrain))
        if config.task == "train":
            return phases
        for number in range(len(self.pruner)):
            phases.append(Phase(len(phases), "prune", config.prune, number))
        return [*phases, Phase(len(phases), "finetune", config.finetune)]

    def run(self) -> dict[str, Any]:
        """Do what is left to do; returns the summary."""
        where = self.folder if self.engine.main else None
        self.log = EventLog(where / "events.jsonl" if where else None)
        self.board = TensorBoard(where / "tb" if where else None)
        quiet = None if self.engine.main else False
        modes = {module: module.training for module in self.model.modules()}
        if not self.log.events:
            self._announce()
        for event, fields in self._notes:
            self.log.write(event, **fields)
            self.console.print(fields.get("message") or f"resuming from {fields['checkpoint']}", markup=False)
        try:
            with self.engine.threads(), torch.random.fork_rng(devices=[]), Signals() as signals:
                with Progress(self.console, enabled=quiet) as self.progress:
                    self.progress.stages(len(self.phases))
                    while self.state.phase < len(self.phases):
                        self._run_phase(self.phases[self.state.phase], signals)
                return self._finish()
        finally:
            if self._current is not None and self._current.stage is not None:
                self._current.stage.abandon()
            for module, mode in modes.items():
                module.training = mode
            self.board.close()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Bring a fresh runner to where the checkpoint was taken."""
        values = checkpoint.values
        self.state = State(**values["state"])
        dense = checkpoint.group("teacher")
        if dense:
            self.teacher = copy.deepcopy(self.model).requires_grad_(False)
            self.teacher.load_state_dict(dense)
            self.engine.place(self.teacher)
        for name, site in values["sites"].items():
            kept = set(site["kept"])
            self.graph.remove({name: [c for c in range(site["channels"]) if c not in kept]})
        self.model.load_state_dict(checkpoint.group("model"))
        self._pending = checkpoint

    def note_resume(self, path: Path, damaged: list[str]) -> None:
        """Say from where the run goes on, once it does."""
        self._notes = [*(("warning", {"message": text}) for text in damaged), ("resume", {"checkpoint": path.name})]

    # phases

    def _run_phase(self, phase: Phase, signals: Signals) -> None:
        self.engine.place(self.model)
        if phase.kind != "pretrain" and not self.state.started:
            self._start()
        self._current = current = self._begin(phase)
        began = time.monotonic()
        while not current.over:
            epoch = current.step // current.stream.steps + 1
            label = self._label(phase, current, epoch)
            self.progress.stage(phase.number, label)
            self.progress.epoch(current.stream.steps, label)
            for loss in current.run_epoch():
                self._count(phase, current)
                self.progress.step(loss)
                self._breathe(signals)
            self._epoch_event(phase, current)
        self._current = None
        if current.stage is not None:
            self._cut(phase, current, time.monotonic() - began)
        self.state.phase += 1
        self._save()

    def _begin(self, phase: Phase) -> PhaseRun:
        stage = None if phase.stage is None else self.pruner.stage(phase.stage, remember=False)
        teacher = self._dense_network() if phase.distill else None
        stream = self.feed.train(phase.optim.batch_size)
        current = PhaseRun(
            phase, self.engine, self.model, stream, self.loss_fn, seed=self.config.seed, stage=stage, teacher=teacher
        )
        if self._pending is not None:
            if self._pending.values["phase"] is not None:
                current.restore(self._pending.tensors, self._pending.values["phase"])
            self._pending = None
        return current

    def _dense_network(self) -> nn.Module | None:
        if self.teacher is None:
            return None
        wrapped, _ = self.engine.setup(self.teacher.eval())
        return wrapped

    def _start(self) -> None:
        """The dense network is ready: note what it can do, and keep it where it will teach."""
        if any(phase.distill for phase in self.phases):
            self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        if self.feed.test is not None:
            self.state.error_before = self._evaluate(self.feed.test)
        self.state.started = True
        self.log.write("dense", error_before=self.state.error_before)

    def _announce(self) -> None:
        self.log.write(
            "start",
            version=metadata.version("rbprune"),
            command=self.command,
            config=self.config.model_dump(),
            config_toml=to_toml(self.config),
            model=self.config.model.name,
            method=self.config.prune.method,
            seed=self.config.seed,
            dataset_size=self.dataset_size,
            macs=self.dense[0],
            params=self.dense[1],
            sites={site.name: site.original for site in self.graph.sites},
            layers=self.dense_layers,
        )

    def _label(self, phase: Phase, current: PhaseRun, epoch: int) -> str:
        epochs = -(-current.steps // current.stream.steps)
        if phase.stage is None:
            return f"{phase.kind} epoch {epoch}/{epochs}"
        names = self.pruner.stages[phase.stage]
        what = names[0] if len(names) == 1 else f"{len(names)} sites"
        return f"stage {phase.stage + 1}/{len(self.pruner)} {what} epoch {epoch}/{epochs}"

    def _count(self, phase: Phase, current: PhaseRun) -> None:
        """Cost of a step in dense epochs; a forward pass of the dense network counts a third of its step."""
        if current.step == 1 or self._macs_now is None:
            self._macs_now = self.graph.macs()
        ratio = self._macs_now / self.dense[0] + (1 / 3 if current.teacher is not None else 0)
        self.state.cost[phase.kind] += ratio / current.stream.steps

    _macs_now: int | None = None

    def _cut(self, phase: Phase, current: PhaseRun, seconds: float) -> None:
        assert current.stage is not None
        stream, wanted = current.stream, self.config.runtime.recalibrate
        batches = (self.engine.put(x) for x, _ in islice(stream.epoch(mix(phase.number, 1 << 40)), wanted))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = current.stage.finish(batches=batches)
        for warning in caught:
            self._warn(str(warning.message))
        self.engine.place(self.model)
        self._macs_now = None
        self.state.undecided.update(result.undecided)
        self.state.guarded += result.guarded
        self.state.val_error = self._evaluate(self.feed.val) if self.feed.val else None
        event = self.log.write(
            "stage",
            stage=phase.stage,
            stages=len(self.pruner),
            sites=list(result.channels),
            channels={name: list(pair) for name, pair in result.channels.items()},
            rates={name: [round(r, 5) for r in rate.tolist()] for name, rate in result.rates.items()},
            undecided=result.undecided,
            price={name: list(pair) for name, pair in result.price.items()},
            epochs=current.step / stream.steps,
            settled=current.settled,
            guarded=result.guarded,
            macs=self.graph.macs(),
            params=self.graph.params(),
            macs_ratio=self.dense[0] / self.graph.macs(),
            params_ratio=self.dense[1] / self.graph.params(),
            val_error=self.state.val_error,
            seconds=seconds,
        )
        self.board.rates(phase.number, result.rates)
        self.progress.log(stage_line(event))

    def _warn(self, message: str) -> None:
        self.log.write("warning", message=message)
        self.progress.log(f"warning: {message}")

    def _epoch_event(self, phase: Phase, current: PhaseRun) -> None:
        meter, count = current.meter, max(1, current.meter.steps)
        self.state.val_error = self._evaluate(self.feed.val) if self.feed.val else None
        images = count * current.phase.optim.batch_size / max(1e-9, meter.seconds)
        undecided = None
        if current.stage is not None:
            shares = current.stage.undecided()
            undecided = sum(shares.values()) / len(shares)
        values = {
            "loss": meter.loss / count,
            "kl": meter.kl / count,
            "val_error": self.state.val_error,
            "lr": current.optimizers[0].param_groups[0]["lr"],
            "dense_epochs": sum(self.state.cost.values()),
            "images_per_second": images,
            "undecided": undecided,
        }
        epoch = -(-current.step // current.stream.steps)
        epochs = -(-current.steps // current.stream.steps)
        self.log.write(
            "epoch", phase=phase.kind, stage=phase.stage, epoch=epoch, epochs=epochs, seconds=meter.seconds, **values
        )
        self.board.scalars(len(self.log.events), **{f"{phase.kind}/{k}": v for k, v in values.items() if v is not None})
        if phase.kind != "prune":
            error = "" if self.state.val_error is None else f"  val error {self.state.val_error:.2f} %"
            self.progress.log(
                f"{phase.kind} {epoch}/{epochs}  loss {values['loss']:.4f}{error}  ({meter.seconds:.0f} s)"
            )
        meter.loss = meter.kl = meter.seconds = 0.0
        meter.steps = 0

    def _evaluate(self, stream: Stream) -> float:
        return evaluate(self.engine, self.model, stream, self.loss_fn)

    # checkpoints

    def _breathe(self, signals: Signals) -> None:
        """Between two steps: stop if asked to, save if it is time."""
        if signals.received is not None:
            self._save()
            hint = f"; go on with: rbprune resume {self.folder}" if self.folder else ""
            raise Interrupted(signals.received, f"interrupted{hint}")
        if time.monotonic() - self._saved > self.config.runtime.checkpoint_seconds:
            self._save()

    def _elapsed(self) -> float:
        now = time.monotonic()
        self.state.seconds += now - self._clock
        self._clock = now
        return self.state.seconds

    def _save(self) -> None:
        self._elapsed()
        self._saved = time.monotonic()
        if self.folder is None or not self.engine.main:
            return
        tensors = {f"model.{k}": v for k, v in state_tensors(self.model).items()}
        if self.teacher is not None:
            tensors |= {f"teacher.{k}": v for k, v in state_tensors(self.teacher).items()}
        if self._current is not None:
            tensors |= self._current.tensors()
        values = {
            "state": asdict(self.state),
            "sites": self.graph.plan().sites,
            "phase": None if self._current is None else self._current.values(),
            "events": len(self.log.events),
        }
        save_checkpoint(self.folder / CHECKPOINTS, Checkpoint(tensors, values))

    # the end

    def _finish(self) -> dict[str, Any]:
        test = self.feed.test or self.feed.val
        error_after = self._evaluate(test) if test is not None else None
        macs, params = self.graph.macs(), self.graph.params()
        touched = {name for stage in self.pruner.stages for name in stage}
        summary: dict[str, Any] = {
            "model": self.config.model.name,
            "method": self.config.prune.method,
            "seed": self.config.seed,
            "dataset_size": self.dataset_size,
            "error_before": self.state.error_before,
            "error_after": error_after,
            "val_error_after": self.state.val_error,
            "macs_before": self.dense[0],
            "macs_after": macs,
            "macs_ratio": self.dense[0] / macs,
            "params_before": self.dense[1],
            "params_after": params,
            "params_ratio": self.dense[1] / params,
            "channels": {s.name: [s.original, s.channels] for s in self.graph.sites if s.name in touched},
            "undecided": self.state.undecided,
            "guarded": self.state.guarded,
            "dense_epochs": dict(self.state.cost),
            "seconds": self._elapsed(),
            "versions": versions(),
        }
        self.log.write("done", summary=summary, layers=[asdict(layer) for layer in self.graph.layers()])
        return summary


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("rbprune", "torch", "lightning-fabric", "numpy", "safetensors")
    found = {name: metadata.version(name) for name in names}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}
