"""A whole run: pretraining where asked for, stages of inference, fine-tuning; checkpointed and logged."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from rbprune.graph.cost import known_costs
from rbprune.logging.journal import Journal
from rbprune.pruner import Loss, Pruner
from rbprune.settings.sections import Settings
from rbprune.train.budget import Account, with_budget
from rbprune.train.checkpoint import Checkpoint, save_checkpoint
from rbprune.train.dense import measure_dense, score_dense
from rbprune.train.evaluate import Score, evaluate
from rbprune.train.forecast import forecast_correction
from rbprune.train.phase import Phase, PhaseRun, check_trainable, plan_phases
from rbprune.train.precision import start_engine
from rbprune.train.saving import interrupted, restore_checkpoint, restore_phase, take_checkpoint
from rbprune.train.stage_end import CALIBRATION, end_stage
from rbprune.train.state import RunData, RunFiles, RunState, RunTrackers, Timer, open_journal
from rbprune.train.stream import Stream
from rbprune.train.summary import summarise
from rbprune.utils.interrupt import Signals, StoppedWaiting
from rbprune.utils.loader_workers import worker_deaths_named
from rbprune.utils.modes import modes_kept
from rbprune.utils.processes import share_buffers
from rbprune.utils.seeds import mix
from rbprune.utils.state import check_state

_BEGINNING = CALIBRATION + 2
"""Seeds what a stage draws when it begins."""
_SHOW_SECONDS = 0.2
"""Between two readings of the loss for the progress bar."""
_ASK_STEPS = 8
"""Between two moments at which processes ask each other whether one of them was told to stop."""


class Runner:
    """Runs the phases of ``settings`` on ``model``, in place. Without ``files`` everything stays in memory."""

    def __init__(
        self,
        settings: Settings,
        model: nn.Module,
        example_inputs: Any,
        data: RunData,
        loss_fn: Loss,
        *,
        files: RunFiles | None = None,
        console: Console | None = None,
        command: list[str] | None = None,
        trackers: RunTrackers | None = None,
    ) -> None:
        self.settings, self.model, self.data, self.loss_fn, self.files = settings, model, data, loss_fn, files
        self.command, self.console, self.trackers = command or [], console or Console(stderr=True), trackers
        prune = settings.prune
        check_trainable(settings, model, loss_fn)
        if files is not None:
            check_state(model)
        stream = data.train(prune.batch_size)
        self.dataset_size = stream.size
        prune = prune.with_epochs(stream.steps)
        self.pruner = Pruner(model, example_inputs, dataset_size=stream.size, loss_fn=loss_fn, settings=prune)
        settings = settings.model_copy(update={"prune": self.pruner.settings})
        self.settings = settings = with_budget(settings, self.pruner, lambda size: data.train(size).steps)
        self.graph = self.pruner.graph
        self.dense = {name: cost.total(self.graph) for name, cost in known_costs(self.graph).items()}
        """What the dense network costs, by name of the cost."""
        self.phases = plan_phases(settings, len(self.pruner))
        self.engine, self.arithmetic = start_engine(settings, self.phases, model, self.graph, data, loss_fn)
        self.settings = settings = settings.model_copy(update={"runtime": self.engine.settings})
        if settings.task == "prune":
            self.pruner.rehearse()
        self.state = RunState()
        self.account = Account(settings, self.pruner, self.state)
        self.teacher: nn.Module | None = None
        self.asked_to_stop: int | None = None
        """A signal that came when there was nothing left to interrupt."""
        self.journal = Journal(self.console, silent=True)
        self.current: PhaseRun | None = None
        """The phase in progress."""
        self.timer: Timer | None = None
        """Measures the latency at the end."""
        self._resumed: tuple[Checkpoint, str, list[str]] | None = None
        self._saved = self._clock = time.monotonic()
        self._shown = 0.0

    def run(self) -> dict[str, Any]:
        """Do what is left to do; returns the summary."""
        self.journal = open_journal(self.console, self.files, main=self.engine.main, trackers=self.trackers)
        if not self.journal.events:
            self.journal.start(self.settings, self.command, self.graph, self.dataset_size, self.pruner.stages)
            self.journal.precision(**self.arithmetic.told())
        try:
            with (
                modes_kept(self.model),
                self.engine.threads(),
                torch.random.fork_rng(devices=[]),
                Signals() as signals,
                worker_deaths_named(),
            ):
                with self.journal.progress:
                    if self._resumed is not None:
                        _, name, damaged = self._resumed
                        self.journal.resumed(name, warnings=(*damaged, *self.arithmetic.warnings))
                    self.journal.progress.stages(len(self.phases))
                    while self.state.phase < len(self.phases):
                        self._run_phase(self.phases[self.state.phase], signals)
                summary = self._finish()
                self.asked_to_stop = signals.received
                return summary
        finally:
            if self.current is not None and self.current.stage is not None:
                self.current.stage.abandon()
            self.journal.close()

    def restore(self, checkpoint: Checkpoint, name: str, damaged: list[str]) -> None:
        """Bring a fresh runner to where the checkpoint was taken; ``damaged`` are newer ones that could not be read."""
        restore_checkpoint(self, checkpoint)
        self._resumed = (checkpoint, name, damaged)

    # phases

    def _run_phase(self, phase: Phase, signals: Signals) -> None:
        if phase.stage is not None and not self.pruner.sites_left(phase.stage):
            self.state.phase += 1  # its sites have gone with a branch
            return
        self.engine.place(self.model)
        if phase.kind != "pretrain" and not self.state.started:
            self._start()
        self.current = current = self._begin(phase)
        if not current.steps and (warning := self.account.starved(phase)):
            self.journal.warn(warning)
        price = self.account.epoch(phase, teacher=self.teacher is not None, steps=current.steps) / current.stream.steps
        began = time.monotonic()
        while True:
            if current.at_epoch_end:
                self._tell_epoch(current)
                current.meter.reset()
            if current.over:
                break
            label = current.label(self.pruner.stages)
            self.journal.progress.stage(phase.number, label)
            self.journal.progress.epoch(current.stream.steps, label)
            try:
                for loss in current.run_epoch():
                    self.account.spend(phase.kind, price)
                    self._show(loss)
                    self._between_steps(signals)
            except StoppedWaiting as stop:  # between two steps, for a batch that does not come
                self._save()
                raise interrupted(self, stop.number) from None
        share_buffers(self.model)  # what is judged, or taught by, from here on is the same network in all processes
        if current.stage is not None:
            self._cut(current, time.monotonic() - began)
        self.current = None
        self.state.phase += 1
        self._save()

    def _tell_epoch(self, current: PhaseRun) -> None:
        cut_follows = current.over and current.stage is not None  # and validates again
        error = None if cut_follows else self._validate()
        self.state.validated(error, recovery_epoch=current.epoch if current.phase.kind == "finetune" else 0)
        self.journal.epoch(current.record(self.state.metric, val_error=error, dense_epochs=self.account.total()))
        self.data.tell_skipped(self.journal.warn)

    def _show(self, loss: Tensor) -> None:
        """Move the progress bar; its number is read from the device a few times a second, not in every step."""
        due = time.monotonic() - self._shown > _SHOW_SECONDS
        self._shown = time.monotonic() if due else self._shown
        self.journal.progress.step(loss.item() if due else None)

    def _begin(self, phase: Phase) -> PhaseRun:
        torch.manual_seed(mix(self.settings.seed, phase.salt, _BEGINNING))
        self.pruner.dense = self.teacher
        goes_on = self._resumed is not None and self._resumed[0].values["phase"] is not None
        stage = None if phase.stage is None else self.pruner.stage(phase.stage, remember=False, look=not goes_on)
        if stage is not None:
            stage.tell = self.journal.warn
            if self.pruner.dense_measures is not None:
                self.state.explained = self.pruner.dense_measures.explained
            self._take_settings()
        if not goes_on:
            phase.prepare(self.model, self.settings.seed)
        teach = self.teacher if phase.distill else None
        teacher = None if teach is None else self.engine.setup(teach.eval())[0]
        stream = self.data.train(phase.optim.batch_size)
        current = PhaseRun(
            phase,
            self.engine,
            self.model,
            stream,
            self.loss_fn,
            seed=self.settings.seed,
            stage=stage,
            teacher=teacher,
            epochs=self.account.epochs(phase, teacher=self.teacher is not None, steps=stream.steps),
        )
        if self._resumed is not None:
            checkpoint, self._resumed = self._resumed[0], None
            restore_phase(current, checkpoint)
        return current

    def _start(self) -> None:
        """The dense network is ready: note what it can do, and keep it where it will teach."""
        if any(phase.distill for phase in self.phases) or self.pruner.method.stage.needs_dense:
            self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        state = self.state
        score_dense(self.data, state, self._evaluate)
        self.data.tell_skipped(self.journal.warn)
        self.measure_dense()
        state.started = True
        self.journal.dense(**state.of_dense(), price=self.settings.prune.price)
        self.data.tell_skipped(self.journal.warn)

    def measure_dense(self) -> None:
        """Let the pruner look at the dense network, or at what is known of it."""
        stream = self.data.train(self.settings.prune.batch_size)
        measure_dense(self.pruner, stream, self.engine, state=self.state, account=self.account, seed=self.settings.seed)
        self._take_settings()

    def _take_settings(self) -> None:
        """The pruner has decided more of what was left open."""
        self.settings = self.settings.model_copy(update={"prune": self.pruner.settings})

    def _cut(self, current: PhaseRun, seconds: float) -> None:
        result = end_stage(current, self.settings, self.engine, self.account, self.loss_fn)
        self.state.undecided.update(result.undecided)
        self.state.guarded += result.guarded
        correction = forecast_correction(self.state.cuts)
        self.state.cuts.append({**asdict(result.cut), "settled": current.settled})
        self.state.validated(self._validate())
        record = current.stage_record(
            len(self.pruner), seconds=seconds, metric=self.state.metric, val_error=self.state.val_error
        )
        record = replace(record, correction=correction, dense_loss=self.state.dense_loss)
        self.journal.stage(record, result, self.graph, self.dense)
        self.data.tell_skipped(self.journal.warn)

    def _validate(self) -> float | None:
        if self.data.val is None:
            return None
        score = self._evaluate(self.data.val)
        self.state.mistakes = None if score.mistakes is None else score.mistakes.to_dict()
        return score.value

    def _evaluate(self, stream: Stream) -> Score:
        score = evaluate(self.engine, self.model, stream, self.loss_fn)
        self.state.metric = score.metric
        return score

    # checkpoints

    def _between_steps(self, signals: Signals) -> None:
        """Stop if asked to, save if it is time. Several processes ask each other only now and then: it takes time."""
        together = self.engine.world > 1
        asks = not together or (self.current is not None and self.current.step % _ASK_STEPS == 0)
        if asks and self.engine.any(signals.received is not None):
            self._save()
            self.engine.wait()  # a process that ends takes the others down, and one of them is writing
            raise interrupted(self, self.engine.highest(signals.received or 0))
        if time.monotonic() - self._saved > self.settings.runtime.checkpoint_seconds:
            self._save()

    def _elapsed(self) -> None:
        now = time.monotonic()
        self.state.seconds += now - self._clock
        self._clock = now

    def _save(self) -> None:
        self._elapsed()
        self._saved = time.monotonic()
        if self.data.skipped is not None:
            self.state.skipped = sorted(self.data.skipped.names)
        if self.files is not None and self.engine.main:
            save_checkpoint(self.files.checkpoints, take_checkpoint(self))

    # the end

    def _finish(self) -> dict[str, Any]:
        self.engine.place(self.model)  # a run that stopped after its last phase comes straight here
        test = self.data.test or self.data.val
        score = None if test is None else self._evaluate(test)
        self.data.tell_skipped(self.journal.warn)
        self._elapsed()
        summary = summarise(
            self.settings, self.state, self.pruner, dataset_size=self.dataset_size, dense=self.dense, score=score
        )
        if self.timer is not None and self.engine.main:
            summary["measured_latency"] = self.timer(self.model, self.journal.warn)
        self.journal.done(summary, self.graph)
        return summary
