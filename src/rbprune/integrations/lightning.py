"""PyTorch Lightning: the stages of pruning inside one ``Trainer.fit`` of an unchanged LightningModule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from rbprune.errors import CheckpointError, ConfigError
from rbprune.integrations.callback import HostedCallback
from rbprune.integrations.host import count_examples_of, peek, refuse_unlike_pair
from rbprune.integrations.state import restore_state, take_state
from rbprune.methods import StageResult
from rbprune.methods.ending import STAGE_STEPS
from rbprune.pruner import Loss
from rbprune.utils.extras import import_extra

Callback: Any = import_extra("lightning.pytorch", "pytorch_lightning", extra="lightning").Callback
Trainer: TypeAlias = Any
LightningModule: TypeAlias = Any
"""Those of either name, which have the same parts."""

PRECISIONS = ("32-true", "64-true", "bf16-mixed")
"""What Lightning may train in while stages last."""
AVERAGING = ("StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging")
"""Callbacks of Lightning's that hold a copy of the network, which a cut would leave behind."""


class PruningCallback(HostedCallback, Callback):  # type: ignore[misc]
    """Prunes a network of a LightningModule while ``Trainer.fit`` trains it.

    The stages come one after another from the first batch on: noise in every training step, the divergence in every
    backward pass, and a cut, which the optimizer's state follows, when a stage is over. What is left of the epochs
    after the last cut is recovery. ``lightning.pytorch`` and ``pytorch_lightning`` both take it.

    Args:
        example_inputs: What one call of the network takes: a tensor, a tuple of arguments, or a mapping of names.
        loss_fn: The loss of the training step in terms of the network's outputs and the targets. With it the dense
            network and every cut are measured; without it neither is, and the rates go to their fixed point only
            where the first gradients look like those of a cross-entropy.
        network: The name of the module to prune, as the training step calls it, such as ``"net"``; ``""`` is the
            LightningModule itself. By default the only child with parameters or, of several, the module itself.
        dataset_size: The number of training examples; asked of the loader when it is not given.
        steps: How many training steps a stage takes at most.
        measure: How many training batches the dense network and every cut are measured on.
        unpack: Divides a training batch into inputs and targets; by default it is a pair of them.
        settings: Settings of pruning by name, as ``rbprune.Pruner`` takes them: ``method``, ``price``, ``macs_ratio``.
    """

    begins_with = "Trainer.fit"

    def __init__(
        self,
        example_inputs: Any,
        *,
        loss_fn: Loss | None = None,
        network: str | None = None,
        dataset_size: int | None = None,
        steps: int = STAGE_STEPS,
        measure: int = 4,
        unpack: Callable[[Any], tuple[Any, Any]] = refuse_unlike_pair,
        **settings: Any,
    ) -> None:
        super().__init__(example_inputs, loss_fn, dataset_size, steps, measure, settings)
        self.network, self.unpack = network, unpack

    # what Lightning calls

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse what cannot be pruned in, and let a checkpoint bring its cuts before its weights."""
        if stage != "fit":
            return
        _check_trainer(trainer, pl_module)
        self.stages = None
        load = pl_module.on_load_checkpoint

        def cut_first(checkpoint: dict[str, Any]) -> None:
            self._cut_as(checkpoint, pl_module)
            load(checkpoint)

        pl_module.on_load_checkpoint = cut_first

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the LightningModule as it was."""
        pl_module.__dict__.pop("on_load_checkpoint", None)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the dense network and begin the first stage."""
        optimizer = _only_optimizer(trainer)
        if self.stages is None:
            network = _find_network(pl_module, self.network)
            self.stages = self._host(network, self.dataset_size or _dataset_size(trainer))
        if self.loss_fn is not None:
            batches = peek(_train_loader(trainer), self.measure)
            self.stages.measure(self.unpack(trainer.strategy.batch_to_device(batch)) for batch in batches)
        self._report(trainer, self.stages.begin(optimizer))
        self._tell_if_short(int(trainer.estimated_stepping_batches), "raise max_epochs")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note the targets of the batch."""
        if self.loss_fn is not None and self.stages is not None and self.stages.stage is not None:
            self.stages.targets = self.unpack(batch)[1]

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Compare the first loss with ``loss_fn``."""
        if self.stages is not None and self.stages.first_outputs is not None:
            self.stages.check_loss(float(loss.detach()))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End the stage where it is over: judge, cut, begin the next."""
        if self.stages is not None:
            self._report(trainer, self.stages.step_done(_only_optimizer(trainer)))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take off what is left on the network."""
        if self.stages is not None:
            self.stages.leave()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take off what is left on the network."""
        pl_module.__dict__.pop("on_load_checkpoint", None)
        if self.stages is not None:
            self.stages.abandon()

    def state_dict(self) -> dict[str, Any]:
        """What was cut, and which stage it is: a checkpoint goes on from there, a stage in progress from its start."""
        return {} if self.stages is None else {"pruning": take_state(self.stages)}

    def _cut_as(self, checkpoint: dict[str, Any], pl_module: LightningModule) -> None:
        """Cut the dense network as a checkpoint says, before its weights are loaded."""
        found = checkpoint.get("callbacks", {}).get(self.state_key, {}).get("pruning")
        if found is None:
            raise CheckpointError(
                "the checkpoint was written without PruningCallback, or before training began, so it does not tell "
                "what was cut; load its weights yourself and begin Trainer.fit without ckpt_path"
            )
        self.stages = self._host(_find_network(pl_module, self.network), found["dataset_size"])
        restore_state(self.stages, found)

    def _report(self, trainer: Trainer, results: list[StageResult]) -> None:
        """Tell the loggers of the trainer what stages came to."""
        if not results:
            return
        stages = self._begun()
        told = {f"rbprune/{name}_ratio": ratio for name, ratio in stages.ratios().items()}
        told["rbprune/stage"] = float(stages.number)
        for logger in trainer.loggers:
            logger.log_metrics(told, step=trainer.global_step)


def _check_trainer(trainer: Trainer, pl_module: LightningModule) -> None:
    """Refuse, by name, what stages cannot be run in."""
    if not pl_module.automatic_optimization:
        raise ConfigError(
            f"{type(pl_module).__name__} optimises by itself (automatic_optimization=False), and PruningCallback needs "
            "Lightning's own steps; use rbprune.Pruner in a loop of your own"
        )
    if trainer.world_size > 1 or "SingleDevice" not in type(trainer.strategy).__name__:
        raise ConfigError(
            f"PruningCallback runs in one process on one device, and this Trainer has "
            f"{type(trainer.strategy).__name__} with {trainer.world_size} processes; set devices=1, "
            "strategy='auto', or prune by 'rbprune prune' under torchrun (docs/scale.md)"
        )
    if trainer.precision not in PRECISIONS:
        raise ConfigError(
            f"PruningCallback does not run in precision={trainer.precision!r}: the slopes that stages watch would be "
            f"scaled; choose one of {', '.join(PRECISIONS)}"
        )
    if trainer.accumulate_grad_batches != 1:
        raise ConfigError(
            f"PruningCallback needs a step after every batch, and accumulate_grad_batches="
            f"{trainer.accumulate_grad_batches}; set it to 1 until pruning is over"
        )
    for callback in trainer.callbacks:
        if type(callback).__name__ in (*AVERAGING, "GradientAccumulationScheduler"):
            raise ConfigError(
                f"PruningCallback does not go with {type(callback).__name__}, which holds on to the network, or to "
                "gradients, as they were before a cut; use it in a Trainer.fit after pruning"
            )


def _only_optimizer(trainer: Trainer) -> torch.optim.Optimizer:
    """The optimizer of the LightningModule; several are refused."""
    if len(trainer.optimizers) != 1:
        raise ConfigError(
            f"PruningCallback needs one optimizer, and configure_optimizers returned {len(trainer.optimizers)}; put "
            "all parameters into one, with groups of their own"
        )
    return trainer.optimizers[0]


def _find_network(pl_module: LightningModule, name: str | None) -> nn.Module:
    """The module to prune."""
    if name is None:
        children = [child for child in pl_module.children() if any(True for _ in child.parameters())]
        return children[0] if len(children) == 1 and not pl_module._parameters else pl_module
    try:
        return pl_module.get_submodule(name)
    except AttributeError as error:
        known = ", ".join(repr(child) for child, _ in pl_module.named_children())
        raise ConfigError(
            f"network={name!r}: {type(pl_module).__name__} has no such module; its children are {known}"
        ) from error


def _train_loader(trainer: Trainer) -> Any:
    """The training loader; several at once are refused, since nobody knows which of them the network is called with."""
    loader = trainer.train_dataloader
    if isinstance(loader, dict | list | tuple):
        raise ConfigError(
            f"PruningCallback needs one training loader, and there are {len(loader)}; without loss_fn and with "
            "dataset_size=... it looks at none of them"
        )
    return loader


def _dataset_size(trainer: Trainer) -> int:
    """The training examples; asked for where Lightning leaves some out."""
    loader = _train_loader(trainer)
    if trainer.limit_train_batches != 1.0:
        raise ConfigError(
            f"with limit_train_batches={trainer.limit_train_batches} it is not clear how many examples are trained on; "
            "say it: dataset_size=..."
        )
    return count_examples_of(loader)
