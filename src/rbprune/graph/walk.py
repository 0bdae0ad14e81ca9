"""One walk over a traced network with identities in place of activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.graph.ids import FROZEN, IdSpace
from rbprune.graph.sites import Axis, Role


class Walk:
    """What the rules of operations write into: identities, axes, sums, reasons."""

    def __init__(self, model: nn.Module, keep: tuple[str, ...] = ()) -> None:
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.keep = keep
        self.ids = IdSpace()
        self.axes: dict[tuple[str, Role], Axis] = {}
        self.makers: dict[str, fx.Node] = {}
        self.applied: dict[str, int] = {}
        """How many output positions each weighted layer computes for one example."""
        self.counts: dict[fx.Node, Any] = {}
        """For each number that is a size, the channels it counts (see rules/counts.py)."""
        self.raw: list[fx.Node] = []
        """Uses of a parameter of several dimensions by itself."""
        self.layers: set[fx.Node] = set()
        """F.conv and F.linear that have a rule."""
        self.sums: list[tuple[fx.Node, fx.Node, fx.Node, Tensor]] = []

    def frozen_like(self, like: Any) -> Any:
        """Frozen identities in the structure of an operation's result."""
        return tree_map_only(Tensor, lambda t: torch.full((), FROZEN).expand(t.shape), like)

    def refuse(self, node: fx.Node, args: Any, reason: str) -> Any:
        """Freeze whatever the operation reads, and its result."""
        for leaf in tree_leaves(args):
            if isinstance(leaf, Tensor):
                self.ids.freeze(leaf, self.place(node, reason))
        return self.frozen_like(node.meta["like"])

    def axis(self, owner: str, role: Role, vector: Tensor, tensors: tuple[tuple[str, int], ...] = ()) -> Tensor:
        """Note that ``vector`` lies on an axis of ``owner``; one that is used twice has one axis."""
        known = self.axes.setdefault((owner, role), Axis(owner, role, vector, tensors))
        if known.ids is not vector:
            self.ids.merge(known.ids, vector)
        return known.ids

    def freeze_shared(self) -> None:
        """A tensor that has two uses with different rules stays as it is."""
        holders: dict[str, list[Axis]] = {}
        for axis in self.axes.values():
            for name, _ in axis.tensors:
                holders.setdefault(name, []).append(axis)
        shared = {name for name, axes in holders.items() if len({axis.owner for axis in axes}) > 1}
        shared |= {str(node.target) for node in self.raw if not all(user in self.layers for user in node.users)}
        for name in shared:
            for axis in holders.get(name, []):
                self.ids.freeze(axis.ids, f"{name!r} is used in more than one way")

    def kept(self, name: str) -> bool:
        """Whether the user asked for this module's outputs to stay."""
        return any(name == kept or name.startswith(kept + ".") for kept in self.keep)

    def describe(self, node: fx.Node) -> str:
        """A name for the operation that a person finds in the model's source."""
        if node.op == "call_module":
            return f"{node.target!r} ({type(self.modules[str(node.target)]).__name__})"
        return getattr(node.target, "__name__", str(node.target))

    def place(self, node: fx.Node, reason: str) -> str:
        """A reason with the line of the model's source it comes from, where that is known."""
        frames = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip().startswith("File")]
        frames = [line for line in frames if not any(part in line for part in ("/torch/", "/rbprune/graph/"))]
        if not frames:
            return reason
        file, line = frames[-1].removeprefix("File ").split(",")[:2]
        file, line = file.strip(' "'), line.strip().removeprefix("line ")
        return f"{reason} ({file}:{line})"
