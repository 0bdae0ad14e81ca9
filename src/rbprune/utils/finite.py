"""Numbers that are none: whether the data or the training is to blame, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
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


def broken_numbers(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> str | None:
    """The first weight or statistic of batch normalisation that is no number, in words; None where all are.

    Other buffers may hold infinities on purpose, such as masks. ``weights`` are looked at in place of the model's own,
    by name, before they are loaded.

    >>> net = nn.Sequential(nn.BatchNorm1d(2))
    >>> net[0].running_var[0] = math.nan
    >>> broken_numbers(net)
    "'0.running_var' holds NaN or infinity (1 of its 2 values)"
    """
    tensors: list[tuple[str, Tensor | None]] = list(model.named_parameters())
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            prefix = f"{name}." if name else ""
            tensors += [(f"{prefix}running_mean", module.running_mean), (f"{prefix}running_var", module.running_var)]
    for name, own in tensors:
        tensor = own if weights is None else weights.get(name)
        if tensor is None or not tensor.is_floating_point() or tensor.is_meta or isinstance(tensor, _UNMADE):
            continue
        if not bool(torch.isfinite(tensor).all()):
            bad = int((~torch.isfinite(tensor)).sum())
            return f"{name!r} holds NaN or infinity ({bad} of its {tensor.numel()} values)"
        if name.endswith("running_var") and bool((tensor < 0).any()):
            return f"{name!r} holds {float(tensor.min()):g}, and no variance is negative"
    return None


_UNMADE = (nn.UninitializedParameter, nn.UninitializedBuffer)


def check_network(model: nn.Module) -> nn.Module:
    """Refuse a network whose weights or statistics are no numbers: whatever is computed from it would be none."""
    broken = broken_numbers(model)
    if broken is not None:
        raise NumericalError(
            f"the network cannot be pruned: {broken}; load its weights again, or train it anew with a lower learning "
            "rate"
        )
    return model


def first_broken_example(inputs: Any) -> int | None:
    """The first example of a batch that holds NaN or infinity; None where none does, or where rows are no examples."""
    for tensor in tree_leaves(inputs):
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.dim():
            rows = torch.isfinite(tensor).flatten(1).all(1) if tensor.dim() > 1 else torch.isfinite(tensor)
            if not bool(rows.all()):
                return int((~rows).nonzero()[0])
    return None


def check_evaluated(model: nn.Module, inputs: Any, outputs: Any, targets: Any, where: str) -> None:
    """Refuse a batch of which no score can be told: numbers that are none in the data or in what comes out of it.

    An output may be minus infinity, the logarithm of 0.
    """
    for what, values in (("input", inputs), ("targets", targets)):
        if not bool(all_finite(values)):
            raise NumericalError(
                f"{where} contains NaN or infinity in its {what} (first in example {first_broken_example(values)} of "
                "the batch), so no score can be told; clean the data"
            )
    scores = [t for t in tree_leaves(outputs) if isinstance(t, Tensor) and t.is_floating_point()]
    if any(bool((torch.isnan(t) | (t == math.inf)).any()) for t in scores):
        broken = (
            broken_numbers(model) or "its weights are numbers, so its activations overflow: lower the learning rate"
        )
        raise NumericalError(
            f"the outputs of the network on {where} are NaN or infinite though the input is not: {broken}"
        )
