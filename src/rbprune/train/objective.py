"""What is minimised and what is reported, with errors that name the batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import DataError, first_line
from rbprune.pruner import Loss
from rbprune.utils.inputs import call

TEMPERATURE = 4.0
"""Softens both networks' outputs in distillation."""


def distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), mean over the batch (Hinton et al. 2015)."""
    t = TEMPERATURE
    return t**2 * F.kl_div(
        F.log_softmax(student.float() / t, dim=1),
        F.log_softmax(teacher.float() / t, dim=1),
        reduction="batchmean",
        log_target=True,
    )


def training_outputs(module: nn.Module, inputs: Any, where: str) -> Any:
    """What a module in training makes of a batch; a batch that is too small for its normalisation is named."""
    try:
        return call(module, inputs)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            f"{where} has a single example, and batch normalisation over one value of each channel has no variance; "
            "use a batch_size that leaves no such rest, or drop_last=True"
        ) from error


def data_loss(loss_fn: Loss, outputs: Any, targets: Any, where: str) -> Tensor:
    """``loss_fn(outputs, targets)``; a target that it cannot take becomes an error that says which."""
    try:
        return loss_fn(outputs, targets)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        if (
            isinstance(targets, Tensor)
            and targets.dtype == torch.long
            and isinstance(outputs, Tensor)
            and outputs.dim() > 1
        ):
            classes = outputs.shape[1]
            bad = targets[(targets < 0) | (targets >= classes)]
            if len(bad):
                raise DataError(
                    f"{where} has label {int(bad[0])}, but the model has {classes} outputs (labels 0..{classes - 1}); "
                    "correct the labels or the model's last layer"
                ) from error
        raise DataError(f"the loss fails on {where}: {first_line(error)}; {_describe(outputs, targets)}") from error


def _describe(outputs: Any, targets: Any) -> str:
    """What the loss was given, and the remedy where the type of the targets is the likely cause."""
    told = f"the outputs are {_kind(outputs)} and the targets {_kind(targets)}"
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
        return told
    if targets.shape == outputs.shape:
        return told if targets.is_floating_point() else f"{told}: numbers may have to be floating (targets.float())"
    if targets.dtype != torch.long and targets.dim() == outputs.dim() - 1:
        return f"{told}: labels of classes are whole numbers of type torch.long (targets.long())"
    return told


def _kind(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def mistakes(outputs: Any, targets: Any, best: int = 1) -> Tensor | None:
    """For each example whether its class is not among the ``best`` outputs; None where this is no classification."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
        return None
    if outputs.dim() != 2 or targets.dim() != 1 or targets.is_floating_point():
        return None
    if best == 1:
        return outputs.argmax(1) != targets
    return (outputs.topk(best, dim=1).indices != targets[:, None]).all(1)
