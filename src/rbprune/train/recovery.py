"""What fine-tuning may do beyond plain training: smooth labels, average its weights, start from fresh ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.pruner import Loss
from rbprune.settings.sections import FinetuneSettings, OptimSettings


def training_loss(optim: OptimSettings, loss_fn: Loss) -> Loss:
    """The loss that a phase trains with: ``loss_fn``, in fine-tuning with smoothed labels where that is asked for."""
    smoothing = optim.label_smoothing if isinstance(optim, FinetuneSettings) else 0.0
    if not smoothing:
        return loss_fn
    if loss_fn is not F.cross_entropy:
        name = getattr(loss_fn, "__name__", type(loss_fn).__name__)
        raise ConfigError(
            f"finetune.label_smoothing = {smoothing:g} changes F.cross_entropy, and the loss is {name}; "
            "smooth the labels in your own loss instead"
        )
    return functools.partial(F.cross_entropy, label_smoothing=smoothing)


def make_fresh(model: nn.Module, seed: int) -> None:
    """Give every layer new weights by its own ``reset_parameters``: the control that keeps only the widths."""
    check_resets(model)
    torch.manual_seed(seed)
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()


def check_resets(model: nn.Module) -> None:
    """Refuse a network with a layer that cannot get new weights."""
    without = [
        name or type(model).__name__
        for name, module in model.named_modules()
        if any(True for _ in module.parameters(recurse=False)) and not hasattr(module, "reset_parameters")
    ]
    if without:
        raise ConfigError(
            f"finetune.reinitialise needs layers that can reset their weights, and {without[0]!r} has no "
            "reset_parameters(); give its class one"
        )


class WeightAverage:
    """The mean of the weights (and of the statistics of batch normalisation) over the last steps of a phase."""

    def __init__(self, model: nn.Module, steps: int, share: float) -> None:
        self.model, self.first = model, steps - round(share * steps)
        self.count = 0
        self.means: dict[str, Tensor] = {}

    @staticmethod
    def of(optim: OptimSettings, model: nn.Module, steps: int) -> WeightAverage | None:
        """The average that a phase asks for, if it does."""
        share = optim.average if isinstance(optim, FinetuneSettings) else 0.0
        return WeightAverage(model, steps, share) if share else None

    @torch.no_grad()
    def add(self, step: int) -> None:
        """Take in the weights after ``step`` steps."""
        if step <= self.first:
            return
        self.count += 1
        for name, tensor in self._state().items():
            if name in self.means:
                self.means[name].lerp_(tensor, 1 / self.count)
            else:
                self.means[name] = tensor.clone()

    @torch.no_grad()
    def use(self) -> None:
        """Put the average into the model."""
        state = self._state()
        for name, mean in self.means.items():
            state[name].copy_(mean)

    def _state(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items() if tensor.is_floating_point()}

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {f"average.{name}": mean for name, mean in self.means.items()}

    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        """Go on where a checkpoint was taken."""
        state = self._state()
        self.count = count
        self.means = {
            name: torch.empty_like(now).copy_(tensors[f"average.{name}"]) for name, now in state.items() if count
        }
