"""What was removed, as JSON: enough to make the same cut in a fresh instance of the same network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rbprune.errors import ModelError
from rbprune.graph.surgery import axis_width, keep_positions

VERSION = 1


@dataclass(frozen=True)
class Plan:
    """Kept positions (of the original network) for each changed axis, and kept channels for each site.

    >>> plan = Plan(axes={"conv1": {"out": [0, 2]}}, sites={"conv1": {"channels": 3, "kept": [0, 2]}})
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    axes: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        """One object with the keys version, axes and sites."""
        return json.dumps({"version": VERSION, "axes": self.axes, "sites": self.sites})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what ``to_json`` wrote; anything else is a ModelError."""
        try:
            raw: Mapping[str, Any] = json.loads(text)
            version, axes, sites = raw["version"], raw["axes"], raw["sites"]
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"this is not a pruning plan ({error!r}); a plan is the plan.json of a run folder"
            ) from error
        if version != VERSION:
            raise ModelError(
                f"plan version {version!r} is unknown to this rbprune (it reads {VERSION}); upgrade rbprune"
            )
        return Plan(axes, sites)


def apply_plan(model: nn.Module, plan: Plan) -> nn.Module:
    """Make the cuts of ``plan`` in a fresh, unpruned instance of the network, in place; returns it.

    >>> model = apply_plan(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), Plan({"0": {"out": [1]}, "1": {"in": [1]}}))
    >>> model[0].out_features
    1
    """
    modules = dict(model.named_modules())
    missing = [name for name in plan.axes if name not in modules]
    if missing:
        raise ModelError(
            f"the plan changes {missing[0]!r}, which this {type(model).__name__} does not have; "
            "build the same network that was pruned, unpruned"
        )
    axes = [(modules[name], role, kept, name) for name, roles in plan.axes.items() for role, kept in roles.items()]
    for module, role, kept, name in axes:
        if max(kept) >= axis_width(module, role):  # type: ignore[arg-type]
            raise ModelError(
                f"the plan keeps position {max(kept)} of {name!r} ({role}), which has fewer; "
                "build the same network that was pruned, with its original width"
            )
    for module, role, kept, _ in axes:
        keep_positions(module, role, torch.tensor(kept, dtype=torch.long))  # type: ignore[arg-type]
    return model
