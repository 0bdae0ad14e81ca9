"""Cut positions out of a module's tensors; the optimizer's state follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from rbprune.errors import UnprunableError
from rbprune.graph.sites import Role


def axis_width(module: nn.Module, role: Role) -> int:
    """Positions on one axis of ``module``."""
    for name, dim in _tensors(module, role):
        tensor = getattr(module, name)
        if tensor is not None:
            return int(tensor.shape[dim])
    return int(module.num_features)  # type: ignore[arg-type]


def weight_of(module: nn.Module) -> Tensor:
    """A layer's weight: [out, in, ...]."""
    return cast(Tensor, module.weight)


def keep_positions(module: nn.Module, role: Role, keep: Tensor, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Keep only the positions ``keep`` of one axis of ``module``, in place."""
    for name, dim in _tensors(module, role):
        old = getattr(module, name)
        if old is None:
            continue
        index = keep.to(old.device)
        new = old.detach().index_select(dim, index)
        if isinstance(old, nn.Parameter):
            parameter = nn.Parameter(new, requires_grad=old.requires_grad)
            setattr(module, name, parameter)
            if optimizer is not None:
                _follow(optimizer, old, parameter, dim, index)
        else:
            setattr(module, name, new)
    _set_width(module, role, len(keep))


def _tensors(module: nn.Module, role: Role) -> Iterator[tuple[str, int]]:
    """Names of the tensors that have the axis, each with the dimension where it lies."""
    if isinstance(module, _ConvNd | nn.Linear) and role == "out":
        yield from (("weight", 0), ("bias", 0))
    elif isinstance(module, _ConvNd | nn.Linear) and role == "in":
        yield "weight", 1
    elif isinstance(module, _BatchNorm) and role == "norm":
        yield from (("weight", 0), ("bias", 0), ("running_mean", 0), ("running_var", 0))
    else:
        raise UnprunableError(f"{type(module).__name__} has no axis {role!r}; it cannot be pruned")


def _set_width(module: Any, role: Role, width: int) -> None:
    if isinstance(module, nn.Linear):
        setattr(module, "out_features" if role == "out" else "in_features", width)
    elif isinstance(module, _ConvNd):
        setattr(module, "out_channels" if role == "out" else "in_channels", width)
    else:
        module.num_features = width


def _follow(optimizer: torch.optim.Optimizer, old: Tensor, new: nn.Parameter, dim: int, keep: Tensor) -> None:
    """Put ``new`` where the optimizer held ``old``, with its state cut likewise."""
    for group in optimizer.param_groups:
        group["params"] = [new if p is old else p for p in group["params"]]
    if old in optimizer.state:
        state = optimizer.state.pop(old)
        optimizer.state[new] = {
            key: value.index_select(dim, keep) if isinstance(value, Tensor) and value.shape == old.shape else value
            for key, value in state.items()
        }
