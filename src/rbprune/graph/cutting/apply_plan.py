"""The cuts of a plan made in a fresh instance of the network."""

from __future__ import annotations

import torch
from torch import nn

from rbprune.graph.cutting.check_plan import check_plan, set_counts
from rbprune.graph.cutting.history import CutHistory, note_cuts, read_cuts, tensor_shapes
from rbprune.graph.cutting.plan import Plan
from rbprune.graph.cutting.replace_modules import replace_modules
from rbprune.graph.cutting.surgery import keep_positions
from rbprune.graph.layer_table import refresh_counts


def apply_plan(model: nn.Module, plan: Plan) -> nn.Module:
    """Make the cuts of ``plan`` in a fresh, unpruned instance of the network, in place; returns it.

    The whole plan is checked first: one that does not fit is a ModelError, and the network stays as it is.

    >>> cut = Plan({"0.weight": {"0": [1]}, "0.bias": {"0": [1]}, "1.weight": {"1": [1]}}, {"0": {"out": 1}})
    >>> apply_plan(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), cut)[0].out_features
    1
    """
    earlier = read_cuts(model)
    check_plan(model, plan)
    shapes = tensor_shapes(model, plan.tensors)
    modules = dict(model.named_modules(remove_duplicate=False))
    replace_modules(model, plan.replacements())
    for name, dims in plan.tensors.items():
        for dim, kept in dims.items():
            keep_positions(model, name, int(dim), torch.tensor(kept, dtype=torch.long))
    for name, widths in plan.widths.items():
        set_counts(modules[name], widths)
    refresh_counts(model.modules())
    note_cuts(model, CutHistory(plan, shapes).after(earlier, model))
    return model
