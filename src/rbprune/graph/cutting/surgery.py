"""Cut positions out of tensors by name; module attributes and the optimizer's state follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from rbprune.errors import ModelError
from rbprune.graph.cutting import weight_norm
from rbprune.graph.layer_table import set_width


def find_tensor(model: nn.Module, name: str) -> tuple[nn.Module, str, Tensor | None]:
    """The module that holds a parameter or buffer, its name there, and itself (None where it is not used)."""
    path, _, leaf = name.rpartition(".")
    holder = _submodule(model, path)
    lists = holder._modules.get("parametrizations")
    steps = list(lists[leaf].modules()) if isinstance(lists, nn.ModuleDict) and leaf in lists else []
    flags = [step.training for step in steps]
    for step in steps:
        step.training = False  # spectral norm takes a step whenever one looks at it in training
    value = getattr(holder, leaf, None)
    for step, flag in zip(steps, flags, strict=True):
        step.training = flag
    return holder, leaf, value


def _submodule(model: nn.Module, path: str) -> nn.Module:
    """As ``model.get_submodule``, which asks for every step whether it is a module."""
    found: nn.Module | None = model
    for step in path.split(".") if path else ():
        found = found._modules.get(step) if found is not None else None
    return model.get_submodule(path) if found is None else found


def weight_names(layer: str) -> tuple[str, ...]:
    """The names that the weights of a layer of that name may have: a module's, those by which a recurrent one reads its
    input, or its own, where it is a parameter that a function uses."""
    return (f"{layer}.weight", layer, f"{layer}.weight_ih_l0", f"{layer}.weight_ih_l0_reverse")


def weights_of(model: nn.Module, modules: Mapping[str, nn.Module], layer: str) -> list[Tensor]:
    """The weights of a layer that its channels are cut from: one, or two of a recurrent layer that runs both ways."""
    module = modules.get(layer)
    names = [layer] if module is None else [f"{layer}.weight"]
    if isinstance(module, nn.RNNBase):
        names = list(weight_names(layer)[2 : 4 if module.bidirectional else 3])
    found = [find_tensor(model, name)[2] for name in names]
    assert all(tensor is not None for tensor in found)
    return [tensor for tensor in found if tensor is not None]


def stored_tensors(holder: nn.Module, leaf: str, *, plain: bool = False) -> list[Tensor]:
    """The tensors that a parameter or buffer of a module consists of: itself, or its parts; none where it is computed.

    ``plain`` allows an attribute that is a tensor but neither parameter nor buffer.
    """
    for table in (holder._parameters, holder._buffers):
        stored = table.get(leaf)
        if stored is not None:
            return [stored]
    value = find_tensor(holder, leaf)[2]
    if normed := weight_norm.find(holder, leaf):
        return [getattr(normed.holder, normed.g), getattr(normed.holder, normed.v)]
    own = leaf in holder._parameters or leaf in holder._buffers or (plain and leaf in vars(holder))
    return [value] if value is not None and own else []


def makers_of_computed(model: nn.Module, name: str) -> str:
    """What computes a parameter that is not stored, by the names of the classes that do."""
    holder, leaf, _ = find_tensor(model, name)
    lists, hooks = holder._modules.get("parametrizations"), list(holder._forward_pre_hooks.values())
    steps = list(lists[leaf].children()) if isinstance(lists, nn.ModuleDict) and leaf in lists else hooks
    return " and ".join(type(step).__name__.lstrip("_") for step in steps) or "other code"


def keep_positions(
    model: nn.Module, name: str, dim: int, keep: Tensor, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Keep only the positions ``keep`` of one dimension of a parameter or buffer, in place."""
    holder, leaf, old = find_tensor(model, name)
    if old is None:
        return
    normed = weight_norm.find(holder, leaf)
    if normed is None:
        _cut(holder, leaf, dim, keep, optimizer)
        return
    before = normed.norm() if dim != normed.dim else None
    _cut(normed.holder, normed.v, dim, keep, optimizer)
    if dim == normed.dim:
        _cut(normed.holder, normed.g, dim, keep, optimizer)
    normed.adjust_magnitude(before)


def check_width(model: nn.Module, name: str, dim: int, width: int) -> None:
    """Refuse a tensor that has another number of positions than the graph knows of."""
    tensor = find_tensor(model, name)[2]
    if tensor is not None and tensor.shape[dim] != width:
        raise ModelError(
            f"{name!r} has {tensor.shape[dim]} positions in dimension {dim}, this graph knows {width}; "
            "something else changed the model: trace it again"
        )


def multiply(model: nn.Module, name: str, dim: int, factors: Tensor) -> None:
    """Multiply a parameter by one factor per position of a dimension, in place."""
    holder, leaf, value = find_tensor(model, name)
    assert value is not None
    normed = weight_norm.find(holder, leaf)
    tensor = value if normed is None else getattr(normed.holder, normed.v)
    before = None if normed is None else normed.norm()
    with torch.no_grad():
        tensor.mul_(factors.to(tensor).view([-1 if d == dim else 1 for d in range(tensor.dim())]))
    if normed is not None:
        normed.adjust_magnitude(before)


def _cut(holder: nn.Module, leaf: str, dim: int, keep: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
    old: Tensor = getattr(holder, leaf)
    index = keep.to(old.device)
    new = old.detach().index_select(dim, index)
    if isinstance(old, nn.Parameter):
        parameter = nn.Parameter(new, requires_grad=old.requires_grad)
        setattr(holder, leaf, parameter)
        if optimizer is not None:
            _follow_in_optimizer(optimizer, old, parameter, dim, index)
    else:
        setattr(holder, leaf, new)
    if isinstance(holder, _NormBase):  # F.batch_norm may use its tensors, and then no axis is the module's own
        set_width(holder, "along", len(index))


def _has_channels_in(value: Any, old: Tensor, dim: int) -> bool:
    """Whether a part of an optimizer's state has the parameter's channels in its dimension (sums over others count)."""
    return isinstance(value, Tensor) and value.dim() == old.dim() and value.shape[dim] == old.shape[dim]


def _follow_in_optimizer(
    optimizer: torch.optim.Optimizer, old: Tensor, new: nn.Parameter, dim: int, keep: Tensor
) -> None:
    """Put ``new`` where the optimizer held ``old``, with the same positions of its state."""
    for group in optimizer.param_groups:
        group["params"] = [new if p is old else p for p in group["params"]]
    if old in optimizer.state:
        state = optimizer.state.pop(old)
        optimizer.state[new] = {
            key: value.index_select(dim, keep) if _has_channels_in(value, old, dim) else value
            for key, value in state.items()
        }
