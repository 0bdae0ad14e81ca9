"""Cut positions out of tensors by name; module attributes and the optimizer's state follow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from rbprune.graph.sites import Role


def find_tensor(model: nn.Module, name: str) -> tuple[nn.Module, str, Tensor | None]:
    """The module that holds a parameter or buffer, its name there, and itself (None where it is not used)."""
    path, _, leaf = name.rpartition(".")
    holder = model.get_submodule(path)
    return holder, leaf, getattr(holder, leaf, None)


def keep_positions(
    model: nn.Module, name: str, dim: int, keep: Tensor, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Keep only the positions ``keep`` of one dimension of a parameter or buffer, in place."""
    holder, leaf, old = find_tensor(model, name)
    if old is None:
        return
    index = keep.to(old.device)
    new = old.detach().index_select(dim, index)
    if isinstance(old, nn.Parameter):
        parameter = nn.Parameter(new, requires_grad=old.requires_grad)
        setattr(holder, leaf, parameter)
        if optimizer is not None:
            _follow(optimizer, old, parameter, dim, index)
    else:
        setattr(holder, leaf, new)
    if isinstance(holder, _NormBase):
        holder.num_features = len(index)


def set_width(module: Any, role: Role, width: int) -> None:
    """Let a module's own numbers say what its tensors are."""
    if isinstance(module, nn.Linear):
        setattr(module, "out_features" if role == "out" else "in_features", width)
    elif isinstance(module, _ConvNd) and role == "along":
        each = module.out_channels // module.in_channels
        module.out_channels, module.in_channels, module.groups = width, width // each, width // each
    elif isinstance(module, _ConvNd) and role in ("out", "in"):
        setattr(module, "out_channels" if role == "out" else "in_channels", width)
    elif isinstance(module, _NormBase):
        module.num_features = width
    elif isinstance(module, nn.GroupNorm):
        each = module.num_channels // module.num_groups
        module.num_channels, module.num_groups = width, width // each
    elif isinstance(module, nn.PReLU):
        module.num_parameters = width
    elif type(module).__name__ == "BlurPool2d":
        module.channels = width


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
