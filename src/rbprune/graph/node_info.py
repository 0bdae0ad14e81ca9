"""What is known about a node of a traced graph: one record, so that its fields have names and types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from rbprune.graph.reasons import Reason

LayersInside = list[tuple[nn.Module, torch.Size]]
"""Layers, each with the shape that holds the places where it is used: of its output, or of a transposed one's input."""


@dataclass
class NodeInfo:
    """What tracing notes about one operation, and the rules read."""

    source_line: str | None = None
    """The line of the model's source that it comes from, as "file:line", where that is known."""
    result: Any = None
    """What it returns, with tensors of the right shape that have no values (on the meta device) in place of tensors."""
    layers_inside: LayersInside = field(default_factory=list)
    """Convolutions and linear layers that run inside of it."""
    failure: str | None = None
    """What stopped the trace of a module that cannot be followed."""
    hook: Reason | None = None
    """Why a value must stay as it is that a forward hook sees and changes here."""
    modules: tuple[str, ...] = ()
    """The modules that run while it does, by name, the outermost ("") first."""
    is_number: bool | None = None
    """Whether it is a size, or a shape, or arithmetic with nothing but these; None until somebody asks."""


@dataclass(frozen=True)
class ModuleCall:
    """A module that was called while tracing: what it was given, where that is a single tensor, and what it returned,
    where that is one."""

    path: str
    source: fx.Node | None
    output: fx.Node | None


def info(node: fx.Node) -> NodeInfo:
    """The record of a node, which is made when it is first asked for."""
    found: NodeInfo | None = node.meta.get("rbprune")
    if found is None:
        found = node.meta["rbprune"] = NodeInfo()
    return found
