"""One walk over a traced network with identities in place of activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.graph.ids import FROZEN, IdSpace
from rbprune.graph.reasons import with_remedy
from rbprune.graph.sites import Axis, Role


class Walk:
    """What the rules of operations write into: identities, axes, sums, reasons."""

    def __init__(self, model: nn.Module, keep: tuple[str, ...] = ()) -> None:
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.keep = keep
        self._kept = {id(module) for name in keep for module in self.modules[name].modules()}
        self.ids = IdSpace()
        self.axes: dict[tuple[str, Role], Axis] = {}
        self.makers: dict[str, fx.Node] = {}
        self.applied: dict[str, int] = {}
        """At how many places each weighted layer is used for one example."""
        self.fixed: dict[str, tuple[int, int, str]] = {}
        """MACs for one example, weights and kind of layers whose weight is computed, so that no cut reaches them."""
        self.batch = 1
        """Examples in the input that is followed."""
        self.bound: dict[int, str] = {}
        """Tensors (by id) that something without a rule uses, each with the reason."""
        self.counts: dict[fx.Node, Any] = {}
        """For each number that is a size, the channels it counts (see rules/counts.py)."""
        self.sums: list[tuple[fx.Node, fx.Node, fx.Node, Tensor]] = []

    def frozen_like(self, like: Any) -> Any:
        """Frozen identities in the structure of an operation's result."""
        return tree_map_only(Tensor, lambda t: torch.full((), FROZEN).expand(t.shape), like)

    def refuse(self, node: fx.Node, args: Any, reason: str) -> Any:
        """Freeze whatever the operation reads, and its result."""
        placed = self.place(node, reason)
        for leaf in tree_leaves(args):
            if isinstance(leaf, Tensor):
                self.ids.freeze(leaf, placed)
        if node.op == "call_module":
            self.bind(self.modules[str(node.target)], placed)
        for source in node.all_input_nodes:
            if source.op == "get_attr":
                self.bind_value(str(source.target), placed)
        return self.frozen_like(node.meta["like"])

    def bind(self, module: nn.Module, reason: str) -> None:
        """Nothing may be cut from the tensors of a module."""
        for tensor in (*module.parameters(), *module.buffers()):
            self.bound.setdefault(id(tensor), reason)

    def bind_value(self, name: str, reason: str) -> None:
        """Nothing may be cut from one parameter or buffer."""
        path, _, leaf = name.rpartition(".")
        self.bound.setdefault(id(getattr(self.modules[path], leaf, None)), reason)

    def axis(self, owner: str, role: Role, vector: Tensor, tensors: tuple[tuple[str, int], ...] = ()) -> Tensor:
        """Note that ``vector`` lies on an axis of ``owner``; one that is used twice has one axis."""
        known = self.axes.setdefault((owner, role), Axis(owner, role, vector, tensors))
        if known.ids is not vector:
            self.ids.merge(known.ids, vector)
        return known.ids

    def kept(self, name: str) -> bool:
        """Whether the user asked for the outputs of a module, by whichever of its names, to stay."""
        holder = name if name in self.modules else name.rpartition(".")[0]
        return bool(self.keep) and id(self.modules[holder]) in self._kept

    def keeps(self, name: str) -> str:
        """The reason for that."""
        return f"{name!r} is kept by keep={list(self.keep)}"

    def describe(self, node: fx.Node) -> str:
        """A name for the operation that a person finds in the model's source."""
        if node.op == "call_module":
            return f"{node.target!r} ({type(self.modules[str(node.target)]).__name__})"
        return getattr(node.target, "__name__", str(node.target))

    def place(self, node: fx.Node, reason: str) -> str:
        """A reason with the line of the model's source it comes from, where that is known."""
        return with_remedy(reason, node.meta.get("where"))
