"""The cuts of a plan made in a fresh instance of the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

import torch
from torch import nn

from rbprune.errors import ModelError
from rbprune.graph.cutting.history import CutHistory, note_cuts, read_cuts, tensor_shapes
from rbprune.graph.cutting.plan import Plan
from rbprune.graph.cutting.replace_modules import check_steps, replace_modules
from rbprune.graph.cutting.surgery import find_tensor, keep_positions
from rbprune.graph.layer_table import set_width
from rbprune.graph.sites import Role


def apply_plan(model: nn.Module, plan: Plan) -> nn.Module:
    """Make the cuts of ``plan`` in a fresh, unpruned instance of the network, in place; returns it.

    >>> cut = Plan({"0.weight": {"0": [1]}, "0.bias": {"0": [1]}, "1.weight": {"1": [1]}}, {"0": {"out": 1}})
    >>> apply_plan(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), cut)[0].out_features
    1
    """
    earlier = read_cuts(model)
    cuts = [(name, int(dim), kept) for name, dims in plan.tensors.items() for dim, kept in dims.items()]
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, dim, kept in cuts:
        _check(model, name, dim, kept)
    replaced = {path: steps for block in plan.blocks.values() for path, steps in block.modules.items()}
    for name in (*plan.widths, *(path for path in replaced if not _lies_in(path, replaced))):
        if name not in modules:
            raise _not_here(model, name)
    for path, steps in replaced.items():
        check_steps(path, steps)
    shapes = tensor_shapes(model, plan.tensors)
    replace_modules(model, replaced)
    for name, dim, kept in cuts:
        keep_positions(model, name, dim, torch.tensor(kept, dtype=torch.long))
    for name, widths in plan.widths.items():
        for axis, width in widths.items():
            if axis in get_args(Role):
                set_width(modules[name], cast(Role, axis), width)
            else:
                setattr(modules[name], axis, width)
    note_cuts(model, CutHistory(plan, shapes).after(earlier, model))
    return model


def _lies_in(path: str, replaced: Mapping[str, list[str]]) -> bool:
    return any(path.startswith(f"{other}.") for other in replaced)


def _not_here(model: nn.Module, name: str) -> ModelError:
    return ModelError(
        f"the plan changes {name!r}, which this {type(model).__name__} does not have; "
        "build the same network that was pruned, unpruned"
    )


def _check(model: nn.Module, name: str, dim: int, kept: list[int]) -> None:
    try:
        tensor = find_tensor(model, name)[2]
    except AttributeError:
        tensor = None
    if tensor is None:
        raise _not_here(model, name)
    if tensor.dim() <= dim or max(kept, default=-1) >= tensor.shape[dim]:
        raise ModelError(
            f"the plan keeps position {max(kept)} of {name!r} (dimension {dim}), which has fewer; "
            "build the same network that was pruned, with its original width"
        )
