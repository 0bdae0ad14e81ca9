"""Labels must be class numbers."""

from __future__ import annotations

from torch import Tensor

from rbprune.errors import DataError


def check_labels(labels: Tensor, classes: int, where: object) -> None:
    """Refuse labels outside 0 to ``classes`` - 1, which the loss cannot take."""
    wrong = ((labels < 0) | (labels >= classes)).nonzero().flatten()
    if len(wrong):
        raise DataError(
            f"{where}: label {int(labels[wrong[0]])} of example {int(wrong[0])} is not one of 0 to {classes - 1} "
            f"({len(wrong)} such); the data is damaged, or has another number of classes"
        )
