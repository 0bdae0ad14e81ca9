"""Hugging Face transformers: the stages of pruning inside one ``Trainer.train``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rbprune.errors import CheckpointError, ConfigError, DataError
from rbprune.integrations.callback import HostedCallback
from rbprune.integrations.host import count_examples_of, peek
from rbprune.integrations.stages import HostedStages
from rbprune.integrations.state import restore_state, take_state
from rbprune.methods.ending import STAGE_STEPS
from rbprune.pruner import Loss
from rbprune.utils.extras import import_extra
from rbprune.utils.files import write_atomic
from rbprune.utils.names import shown
from rbprune.utils.plain_file import read_table

TrainerCallback: Any = import_extra("transformers", extra="transformers").TrainerCallback
TrainingArguments: TypeAlias = Any
TrainerState: TypeAlias = Any
TrainerControl: TypeAlias = Any
"""Those of transformers, all of which a type checker would have to read."""
STATE_FILE = "rbprune.json"
"""What a checkpoint of the Trainer's says of the cuts, beside its own files."""


def select_logits(outputs: Any) -> Any:
    """The scores in what a model of transformers returns, which the loss is computed from."""
    if isinstance(outputs, Tensor):
        return outputs
    try:
        return outputs["logits"]
    except (KeyError, TypeError, IndexError) as error:
        known = ", ".join(outputs) if hasattr(outputs, "keys") else type(outputs).__name__
        raise ConfigError(f"the model returns no logits, but {known}; say what the loss takes: select=...") from error


class PruningTrainerCallback(HostedCallback, TrainerCallback):  # type: ignore[misc]
    """Prunes the model of a Hugging Face ``Trainer`` while it trains; Trainer and model stay as they are.

    The stages come one after another from the first step on: noise in every training step, the divergence in every
    backward pass, and a cut, which the optimizer's state follows, when a stage is over. What is left of the training
    after the last cut is recovery.

    Args:
        example_inputs: What one call of the model takes without labels, such as ``{"pixel_values": images[:2]}``.
        loss_fn: The loss in terms of what ``select`` finds and the labels. With it the dense network and every cut are
            measured; without it neither is.
        labels: The name of the targets in a batch.
        dataset_size: The number of training examples; asked of the loader when it is not given.
        steps: How many training steps a stage takes at most.
        measure: How many training batches the dense network and every cut are measured on.
        select: Finds in what the model returns the outputs that ``loss_fn`` takes; by default the logits.
        settings: Settings of pruning by name, as ``rbprune.Pruner`` takes them: ``method``, ``price``, ``macs_ratio``.
    """

    begins_with = "Trainer.train"

    def __init__(
        self,
        example_inputs: Any,
        *,
        loss_fn: Loss | None = None,
        labels: str = "labels",
        dataset_size: int | None = None,
        steps: int = STAGE_STEPS,
        measure: int = 4,
        select: Callable[[Any], Any] = select_logits,
        **settings: Any,
    ) -> None:
        super().__init__(example_inputs, loss_fn, dataset_size, steps, measure, settings)
        self.labels, self.select = labels, select
        self._prepared: nn.Module | None = None

    def prepare(self, model: nn.Module, checkpoint: str | Path) -> None:
        """Cut a model as a checkpoint of the Trainer's says, before the Trainer loads its weights.

        To be called with the model as it was before pruning, before ``Trainer.train(resume_from_checkpoint=...)``. A
        stage in the middle of which the checkpoint was written begins anew.
        """
        file = Path(checkpoint) / STATE_FILE
        if not file.is_file():
            raise CheckpointError(
                f"{checkpoint} has no {STATE_FILE}: it was not written in a training with PruningTrainerCallback"
            )
        state = read_table(file, CheckpointError)
        size = state.get("dataset_size")
        if type(size) is not int:
            raise CheckpointError(f"{file} says dataset_size = {shown(size)}; take another checkpoint")
        self.stages = self._stages_in(model, size)
        restore_state(self.stages, state)
        self._prepared = model

    # what the Trainer calls

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the dense network and begin the first stage."""
        model, loader = kwargs["model"], kwargs["train_dataloader"]
        _check_arguments(args)
        if self.stages is not None and self._prepared is None:
            self.stages.abandon()  # of a training that an error has ended
        if self._prepared is None:
            if state.global_step:
                raise CheckpointError(
                    f"training goes on at step {state.global_step}, and the model is not cut as its checkpoint says; "
                    "call prepare(model, checkpoint) of this callback before Trainer.train(resume_from_checkpoint=...)"
                )
            self.stages = self._stages_in(model, self.dataset_size or count_examples_of(loader))
        elif self._prepared is not model:
            raise ConfigError("prepare was called with another model than that of the Trainer; give it the same object")
        self._prepared = None
        stages = self._begun()
        if self.loss_fn is not None:
            device = next(model.parameters()).device
            stages.measure(self._pair(_placed(batch, device)) for batch in peek(loader, self.measure))
        stages.begin(_plain(kwargs["optimizer"]))
        self._tell_if_short(state.max_steps - state.global_step, "raise num_train_epochs or max_steps")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """End the stage where it is over: judge, cut, begin the next."""
        self._begun().step_done(_plain(kwargs["optimizer"]))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write what was cut beside the Trainer's checkpoint."""
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if folder.is_dir():
            write_atomic(folder / STATE_FILE, json.dumps(take_state(self._begun())))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take off what is left on the network."""
        self._begun().leave()

    def _stages_in(self, model: nn.Module, dataset_size: int) -> HostedStages:
        return self._host(model, dataset_size, select=self.select, targets_of=lambda named: named.get(self.labels))

    def _pair(self, batch: Any) -> tuple[dict[str, Any], Any]:
        """A batch as what the model is called with, and the targets."""
        if not hasattr(batch, "keys") or self.labels not in batch:
            known = ", ".join(batch) if hasattr(batch, "keys") else f"a {type(batch).__name__}"
            raise DataError(f"a training batch has no {self.labels!r}, but {known}; name the targets: labels=...")
        return {name: value for name, value in batch.items() if name != self.labels}, batch[self.labels]


def _plain(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer of torch inside that of accelerate."""
    return getattr(optimizer, "optimizer", optimizer)


def _placed(batch: Any, device: torch.device) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), dict(batch)) if hasattr(batch, "keys") else batch


def _check_arguments(args: TrainingArguments) -> None:
    """Refuse, by name, what stages cannot be run in."""
    refused = {
        f"world_size={args.world_size}": args.world_size > 1,
        f"n_gpu={args.n_gpu} (DataParallel)": args.n_gpu > 1,
        f"gradient_accumulation_steps={args.gradient_accumulation_steps}": args.gradient_accumulation_steps != 1,
        "fp16=True": bool(args.fp16),
        "gradient_checkpointing=True": bool(args.gradient_checkpointing),
        "torch_compile=True": bool(args.torch_compile),
        f"fsdp={args.fsdp!r}": bool(args.fsdp),
        f"deepspeed={args.deepspeed!r}": bool(args.deepspeed),
        "load_best_model_at_end=True": bool(args.load_best_model_at_end),
    }
    found = [name for name, is_so in refused.items() if is_so]
    if found:
        raise ConfigError(
            f"PruningTrainerCallback does not go with {', '.join(found)}: it runs in one process on one device, with a "
            "step after every batch, in float32 or bf16, and the best model by a metric may be one that was not cut "
            "yet; change these TrainingArguments until pruning is over"
        )
