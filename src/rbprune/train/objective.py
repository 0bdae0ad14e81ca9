"""What is minimised and what is reported, with errors that name the batch."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import DataError
from rbprune.utils.checked_calls import outputs_of, outside_classes

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
        return outputs_of(module, inputs, where)
    except DataError as error:
        if "more than 1 value per channel" not in str(error.__cause__):
            raise
        raise DataError(
            f"{where} has a single example, and batch normalisation over one value of each channel has no variance; "
            "use a batch_size that leaves no such rest, or drop_last=True"
        ) from error.__cause__


def is_classification(outputs: Any, targets: Any) -> bool:
    """Whether these are scores of classes, and one label for each example."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
        return False
    return outputs.dim() == 2 and targets.dim() == 1 and not targets.is_floating_point()


def check_labels_of(outputs: Tensor, targets: Tensor, where: str, ignored: int | None) -> None:
    """Refuse labels of which an error rate would be a lie: fewer than outputs, or of classes that the outputs lack."""
    if len(outputs) != len(targets):
        raise DataError(
            f"{where} has {len(targets)} labels for {len(outputs)} outputs; give one label for each example, and let "
            "the network answer every example on its own"
        )
    outside = outside_classes(outputs, targets if ignored is None else targets[targets != ignored], where)
    if outside is not None:
        raise outside


def mistakes(outputs: Any, targets: Any, best: int = 1) -> Tensor | None:
    """For each example whether its class is not among the ``best`` outputs; None where this is no classification."""
    if not is_classification(outputs, targets):
        return None
    if best == 1:
        return outputs.argmax(1) != targets
    return (outputs.topk(best, dim=1).indices != targets[:, None]).all(1)
