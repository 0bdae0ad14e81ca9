"""One phase of a run (pretraining, a stage of inference, fine-tuning): its state and its training steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rbprune.bayes.likelihood import likelihood_of
from rbprune.errors import DataError, ModelError
from rbprune.logging.journal import EpochRecord, StageRecord
from rbprune.methods import Stage
from rbprune.methods.ending import FEWEST, Settling, StageEnding
from rbprune.pruner import Loss
from rbprune.settings.sections import FinetuneSettings, OptimSettings, PruneSettings, Settings
from rbprune.train.engine import Engine, Together
from rbprune.train.finite import LossMeter
from rbprune.train.objective import distillation, training_outputs
from rbprune.train.optim import learning_rate, make_optimizer
from rbprune.train.recovery import WeightAverage, check_resets, make_fresh, training_loss
from rbprune.train.share import BatchPart, WeighedLoss, own_parts, weigh_loss
from rbprune.train.stream import Stream
from rbprune.utils.batch_norm import norms_of_single_values
from rbprune.utils.checked_calls import data_loss
from rbprune.utils.inputs import call
from rbprune.utils.seeds import mix

Kind = Literal["pretrain", "prune", "finetune"]
_FINETUNE = 1 << 20
"""More than any number of stages."""
_LOOKS = 10
"""How often in an epoch the rates are looked at, where that leaves ``FEWEST`` steps between two looks."""
_MOST_REPORTS = 100
"""Reports of a phase at most, each with a validation: of hundreds of passes over a small data set not every one is
told."""


@dataclass(frozen=True)
class Phase:
    """What is to be done."""

    number: int
    kind: Kind
    optim: OptimSettings
    stage: int | None = None

    @property
    def salt(self) -> int:
        """What tells its random numbers from those of other phases: methods with other numbers of stages, or with and
        without pretraining, see the data in the same order while they fine-tune.
        """
        return {"pretrain": 0, "prune": 1 + (self.stage or 0), "finetune": _FINETUNE}[self.kind]

    @property
    def distill(self) -> float:
        """Share of the loss that comes from the dense network."""
        return self.optim.distill if isinstance(self.optim, PruneSettings | FinetuneSettings) else 0.0

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Do what a phase does to the network before its first step."""
        if isinstance(self.optim, FinetuneSettings) and self.optim.reinitialise:
            make_fresh(model, mix(seed, self.salt))


def check_trainable(settings: Settings, model: nn.Module, loss_fn: Loss) -> None:
    """Refuse at the start of a run what would fail in one of its phases."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError("no parameter of the model can be trained: all have requires_grad=False")
    training_loss(settings.finetune, loss_fn)
    if settings.finetune.reinitialise:
        check_resets(model)


def plan_phases(settings: Settings, stages: int) -> list[Phase]:
    """The phases of a run: pretraining where there are no weights, a phase for each stage, fine-tuning."""
    phases = []
    if settings.pretrain is not None and (settings.model.weights is None or settings.task == "train"):
        phases.append(Phase(0, "pretrain", settings.pretrain))
    if settings.task == "train":
        return phases
    for number in range(stages):
        phases.append(Phase(len(phases), "prune", settings.prune, number))
    return [*phases, Phase(len(phases), "finetune", settings.finetune)]


class PhaseRun:
    """A phase in progress. ``step`` counts the steps that are done."""

    def __init__(
        self,
        phase: Phase,
        engine: Engine,
        model: nn.Module,
        stream: Stream,
        loss_fn: Loss,
        *,
        seed: int,
        stage: Stage | None = None,
        teacher: nn.Module | None = None,
        epochs: float | None = None,
    ) -> None:
        self.phase, self.engine, self.model, self.stream = phase, engine, model, stream
        self.loss_fn = loss_fn = training_loss(phase.optim, loss_fn)
        self.seed, self.stage, self.teacher = seed, stage, teacher
        self.likelihood = likelihood_of(loss_fn)
        self._single_values: list[str] | None = None
        """Layers of batch normalisation that cannot train on one example, once there was a batch to ask for them."""
        self.steps = round((phase.optim.length if epochs is None else epochs) * stream.steps)
        self.report_every = max(1, -(-self.steps // (stream.steps * _MOST_REPORTS)))
        """Epochs between two reports."""
        self.step = 0
        self.meter = LossMeter(engine.fabric.device)
        self.over = self.steps == 0
        self.optimizers = [make_optimizer(phase.optim, model.parameters())]
        self.average = WeightAverage.of(phase.optim, model, self.steps)
        self.settling: Settling | None = None
        if stage is not None:
            assert isinstance(phase.optim, PruneSettings)
            own = stage.optimizer(stage.settings.step_size)
            self.optimizers += [] if own is None else [own]
            self.settling = Settling.of(stage, phase.optim.settle, max(FEWEST, stream.steps // _LOOKS))
        self.ending = None if stage is None else StageEnding(stage, self.settling, self.steps)
        module: nn.Module = model
        if stage is not None and stage.module is not None:
            module, stage.loop.gradients_agree = Together(model, stage.module), True
        self.module, self._ready = engine.setup(module, *self.optimizers)

    @property
    def settled(self) -> bool:
        """Whether a stage has come to rest."""
        return self.ending is not None and self.ending.settled

    def learning_rate(self, step: int) -> float:
        """The weights' learning rate at a step."""
        return learning_rate(self.phase.optim, step, self.steps, self.stream.steps)

    @property
    def epoch(self) -> int:
        """The epoch of the last step, counted from 1."""
        return -(-self.step // self.stream.steps)

    @property
    def at_epoch_end(self) -> bool:
        """Whether an epoch (the last may be a part of one) is complete, is to be reported, and is not yet."""
        return self.meter.steps > 0 and (self.over or self.step % (self.report_every * self.stream.steps) == 0)

    def label(self, stages: list[list[str]]) -> str:
        """What is going on, for the progress bar; ``stages`` are the sites of each."""
        steps, stage = self.stream.steps, self.phase.stage
        epochs = f"epoch {self.step // steps + 1}/{-(-self.steps // steps)}"
        if stage is None:
            return f"{self.phase.kind} {epochs}"
        names = stages[stage]
        what = names[0] if len(names) == 1 else f"{len(names)} sites"
        return f"stage {stage + 1}/{len(stages)} {what} {epochs}"

    def record(self, metric: str, *, val_error: float | None, dense_epochs: float) -> EpochRecord:
        """What there is to tell of the epoch that is over."""
        shares = {} if self.stage is None else self.stage.undecided()
        loss, kl = self.meter.means()
        seconds, stream = self.meter.seconds, self.stream
        return EpochRecord(
            phase=self.phase.kind,
            stage=self.phase.stage,
            epoch=self.epoch,
            epochs=-(-self.steps // stream.steps),
            loss=loss,
            kl=kl,
            lr=self.learning_rate(self.step - 1),
            seconds=seconds,
            images_per_second=self.meter.steps * stream.size / stream.steps / max(1e-9, seconds),
            undecided=sum(shares.values()) / len(shares) if shares else None,
            metric=metric,
            val_error=val_error,
            dense_epochs=dense_epochs,
        )

    def stage_record(self, stages: int, *, seconds: float, metric: str, val_error: float | None) -> StageRecord:
        """What there is to tell of the stage that is over, of so many."""
        assert self.phase.stage is not None
        epochs = self.step / self.stream.steps
        return StageRecord(
            self.phase.number, self.phase.stage, stages, epochs, self.settled, seconds, metric, val_error
        )

    def run_epoch(self) -> Iterator[Tensor]:
        """Train to the end of the current epoch (or of the phase), yielding the loss after every step."""
        self.module.train()
        epoch, start = divmod(self.step, self.stream.steps)
        last = min(self.steps, (epoch + 1) * self.stream.steps)
        torch.manual_seed(mix(self.seed, self.phase.salt, epoch))  # for a loader that shuffles by itself
        rank, world = self.engine.rank, self.engine.world
        for part in own_parts(self.stream, mix(self.phase.salt, epoch), start, rank, world):
            began = time.perf_counter()
            if not self.can_train(part.inputs, part.whole, world):
                self.step += 1
                self.over = self.step >= self.steps
                if self.step < last:
                    continue
                self._check_some()
                return
            loss = self._train_step(part)
            self.step += 1
            self.meter.seconds += time.perf_counter() - began
            self.over = self.step >= self.steps if self.ending is None else self.ending.is_over(self.step)
            if self.average is not None:
                self._average(self.average)
            yield loss
            if self.over or self.step >= last:
                return
        got = self.step - epoch * self.stream.steps
        raise DataError(
            f"epoch {epoch + 1} ({self.phase.kind}) ended after {got} batches, but the loader has {self.stream.steps}; "
            "give one that yields as many in every epoch"
        )

    def can_train(self, inputs: Any, left: int | None, processes: int = 1) -> bool:
        """Whether a batch can be trained on by so many processes, of which so many examples are left: corrupt ones may
        have been left out, and of a single one batch normalisation may see but one value of each channel. ``inputs``
        are of the batch, or of a part of it."""
        if left is None or left >= 2 * processes:
            return True
        if left and self._single_values is None:
            self._single_values = norms_of_single_values(self.model, self.engine.put(inputs))
        return left > 0 and not self._single_values

    def _check_some(self) -> None:
        if self.meter.steps:
            return
        where = f"epoch {-(-self.step // self.stream.steps)} ({self.phase.kind})"
        if self._single_values:
            raise DataError(
                f"no batch of {where} can be trained on: they have single examples, of which batch normalisation "
                f"{self._single_values[0]!r} sees one value of each channel, and that has no variance; use larger "
                "batches (batch_size)"
            )
        raise DataError(f"no training example could be read in {where}: all were left out as corrupt; check data.path")

    def _train_step(self, part: BatchPart) -> Tensor:
        """One step; no number is read from the device. Returns the mean loss of the whole batch."""
        epoch, batch = divmod(self.step, self.stream.steps)
        where = f"batch {batch} of epoch {epoch + 1} ({self.phase.kind})"
        # all randomness of a step depends on its place in the run alone, so a resumed run draws the same numbers
        self.engine.seed(mix(self.seed, self.phase.salt, self.step, self.engine.rank))
        inputs, targets = self.engine.put(part.inputs), self.engine.put(part.targets)
        lr = self.learning_rate(self.step)
        for group in self.optimizers[0].param_groups:
            group["lr"] = lr
        outputs = training_outputs(self.module, inputs, where)
        weighed = weigh_loss(data_loss(self.loss_fn, outputs, targets, where), targets, part.examples, self.likelihood)
        penalty = self._penalty(targets, weighed)
        self.meter.add(weighed.mean, penalty, inputs, where)
        loss = weighed.loss
        if self.teacher is not None:
            taught = weighed.by_examples * self._distill(inputs, outputs)
            loss = (1 - self.phase.distill) * loss + self.phase.distill * taught
        loss = loss + penalty
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self.engine.backward(loss)
        for optimizer in self._ready:
            optimizer.step()
        return weighed.mean

    def _average(self, average: WeightAverage) -> None:
        average.add(self.step)
        if self.over:
            average.use()

    def _penalty(self, targets: Any, weighed: WeighedLoss) -> Tensor:
        """What the stage adds to the loss, the same in all processes."""
        if self.stage is None:
            return weighed.mean.new_zeros(())
        self.stage.share = weighed.share
        return self.stage.kl(targets)

    def _distill(self, inputs: Any, outputs: Tensor) -> Tensor:
        assert self.teacher is not None
        with torch.no_grad():
            wanted = call(self.teacher, inputs)
        return distillation(outputs, wanted)
