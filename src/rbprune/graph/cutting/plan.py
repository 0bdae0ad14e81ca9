"""What was removed, as JSON: enough to make the same cut in a fresh instance of the same network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn

from rbprune.errors import ModelError
from rbprune.graph.cutting.surgery import find_tensor, keep_positions
from rbprune.graph.layer_table import set_width
from rbprune.graph.sites import Role

VERSION = 1


@dataclass(frozen=True)
class Plan:
    """Kept positions (of the original network) of each changed tensor, new widths of modules, kept channels of sites.

    >>> plan = Plan({"conv1.weight": {"0": [0, 2]}}, {"conv1": {"out": 2}}, {"conv1": {"channels": 3, "kept": [0, 2]}})
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    tensors: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    widths: dict[str, dict[str, int]] = field(default_factory=dict)
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        """One object with the keys version, tensors, widths and sites."""
        return json.dumps({"version": VERSION, **vars(self)})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what ``to_json`` wrote; anything else is a ModelError."""
        try:
            raw: Mapping[str, Any] = json.loads(text)
            version, parts = raw["version"], (raw["tensors"], raw["widths"], raw["sites"])
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"this is not a pruning plan ({error!r}); one is the plan.json of a run folder") from error
        if version != VERSION:
            raise ModelError(
                f"plan version {version!r} is unknown here (this rbprune reads {VERSION}); upgrade rbprune"
            )
        return Plan(*parts)


def apply_plan(model: nn.Module, plan: Plan) -> nn.Module:
    """Make the cuts of ``plan`` in a fresh, unpruned instance of the network, in place; returns it.

    >>> cut = Plan({"0.weight": {"0": [1]}, "0.bias": {"0": [1]}, "1.weight": {"1": [1]}}, {"0": {"out": 1}})
    >>> apply_plan(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), cut)[0].out_features
    1
    """
    cuts = [(name, int(dim), kept) for name, dims in plan.tensors.items() for dim, kept in dims.items()]
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, dim, kept in cuts:
        _check(model, name, dim, kept)
    for name in plan.widths:
        if name not in modules:
            raise _not_here(model, name)
    for name, dim, kept in cuts:
        keep_positions(model, name, dim, torch.tensor(kept, dtype=torch.long))
    for name, roles in plan.widths.items():
        for role, width in roles.items():
            set_width(modules[name], cast(Role, role), width)
    return model


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
