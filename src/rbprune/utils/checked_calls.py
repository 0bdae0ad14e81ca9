"""Calls of what the user brought, a network and a loss, with errors that name the batch and what was wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rbprune.errors import ConfigError, DataError, first_line
from rbprune.utils.inputs import arguments, call
from rbprune.utils.loader_workers import worker_death
from rbprune.utils.processes import lost_process

_ORDINARY = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""What a network or a loss raises for a batch that it cannot take."""


def outputs_of(model: nn.Module, inputs: Any, where: str) -> Any:
    """``model(inputs)``; a batch that it cannot take becomes an error that says which, and what it looks like."""
    try:
        return call(model, inputs)
    except torch.OutOfMemoryError:
        raise
    except _ORDINARY as error:
        args, kwargs = arguments(inputs)
        told = ", ".join(_kind(value) for value in (*args, *kwargs.values()))
        raise (worker_death(error) or lost_process(error)) or DataError(
            f"the network fails on {where}: {first_line(error)}; its input is {told}; give every batch the form of the "
            "example_inputs, or leave this one out"
        ) from error


def data_loss(loss_fn: Callable[[Any, Any], Any], outputs: Any, targets: Any, where: str) -> Tensor:
    """``loss_fn(outputs, targets)``, one number with a gradient; a target that it cannot take becomes an error that
    says which, and so does a loss that returns anything else."""
    try:
        loss = loss_fn(outputs, targets)
    except torch.OutOfMemoryError:
        raise
    except _ORDINARY as error:
        outside = outside_classes(outputs, targets, where)
        raise (
            worker_death(error)
            or lost_process(error)
            or outside
            or DataError(f"the loss fails on {where}: {first_line(error)}; {_describe(outputs, targets)}")
        ) from error
    return _one_number(loss, outputs, where)


def outside_classes(outputs: Any, targets: Any, where: str) -> DataError | None:
    """The error for labels that are no class of the outputs; None where there are none."""
    if not (isinstance(targets, Tensor) and isinstance(outputs, Tensor)) or outputs.dim() < 2:
        return None
    if targets.is_floating_point() or targets.is_complex() or targets.dim() != outputs.dim() - 1:
        return None
    classes = outputs.shape[1]
    bad = targets[(targets < 0) | (targets >= classes)]
    if not len(bad):
        return None
    return DataError(
        f"{where} has label {int(bad[0])}, but the model has {classes} outputs (labels 0..{classes - 1}); "
        "correct the labels or the model's last layer"
    )


def _one_number(loss: Any, outputs: Any, where: str) -> Tensor:
    """A loss as one number; one of shape (1,) is."""
    if not isinstance(loss, Tensor):
        remedy = "return the loss" if loss is None else "return the tensor itself, without .item() or float()"
        remedy = "return the first of them alone" if isinstance(loss, tuple | list) else remedy
        raise _not_a_loss(where, f"a {type(loss).__name__} ({loss!r:.60})", remedy)
    if loss.numel() != 1:
        remedy = "take the mean over the examples: loss.mean(), or reduction='mean'"
        raise _not_a_loss(where, f"{loss.numel()} numbers (shape {tuple(loss.shape)})", remedy)
    if not loss.is_floating_point():
        raise _not_a_loss(where, f"a number of type {loss.dtype}", "return a floating number")
    trained = any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(outputs))
    if trained and torch.is_grad_enabled() and not loss.requires_grad:
        remedy = "compute it from the outputs, without .detach(), no_grad or torch.tensor(...)"
        raise _not_a_loss(where, "a tensor without a gradient", remedy)
    return loss.reshape(())


def _not_a_loss(where: str, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"loss_fn returned {what} on {where}, and a loss is one number as a tensor; {remedy}")


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
