"""Numbers that are none: whether the data or the training is to blame, in words."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rbprune.errors import NumericalError


def check_finite(value: float, inputs: Any, where: str) -> None:
    """Stop at a loss that is no number, and say whether the data or the training is to blame."""
    if not math.isfinite(value):
        raise loss_error(value, bool(all_finite(inputs)), where)


def loss_error(value: float, finite_inputs: bool, where: str) -> NumericalError:
    """What to say of a loss that is no number."""
    if not finite_inputs:
        return NumericalError(f"{where} contains NaN or infinity in its input; clean the data")
    return NumericalError(f"the loss is {value} at {where}; lower the learning rate (lr, rate_lr) or clean the data")


def all_finite(inputs: Any) -> Tensor:
    """Whether all floating numbers of some inputs are finite, as a tensor on their device."""
    tensors = [t for t in tree_leaves(inputs) if isinstance(t, Tensor) and t.is_floating_point()]
    flags = [torch.isfinite(t).all() for t in tensors]
    return torch.stack(flags).all() if flags else torch.tensor(True)
