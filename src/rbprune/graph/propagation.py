"""Channel identities on their way through a traced network, in place of activations."""

from __future__ import annotations

from functools import cached_property
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.graph.ids import FROZEN, IdSpace
from rbprune.graph.layer_table import Rule
from rbprune.graph.markers import size_in_python
from rbprune.graph.node_info import ModuleCall, info
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.sites import Axis, Role
from rbprune.graph.size_attributes import Counted


class Propagation:
    """What the rules of operations write into: identities, axes, sums, reasons."""

    def __init__(self, model: nn.Module, keep: tuple[str, ...] = ()) -> None:
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.keep = keep
        self.ids = IdSpace()
        self.axes: dict[tuple[str, Role], Axis] = {}
        self.makers: dict[str, fx.Node] = {}
        """The node of each layer that makes channels."""
        self.applied: dict[str, int] = {}
        """At how many places each weighted layer is used for one example."""
        self.fixed: dict[str, tuple[int, int, str]] = {}
        """MACs for one example, weights and kind of layers whose weight is computed, so that no cut reaches them."""
        self.batch = 1
        """Examples in the input that is followed."""
        self.uncuttable: dict[int, Reason] = {}
        """Tensors (by id) that something without a rule uses, each with the reason."""
        self.left_whole: dict[nn.Module, Reason] = {}
        """Modules in which something happens that is not followed, each with the reason."""
        self.counted: dict[fx.Node, Any] = {}
        """For each number that is a size, the channels it counts (see rules/size_dependence.py)."""
        self.size_reads: dict[tuple[nn.Module, str], set[tuple[CodeType, int]]] = {}
        """For attributes of modules that hold numbers, the code and the instructions that read them."""
        self.verified: dict[nn.Module, Rule] = {}
        """Layers with a forward of their own that were found to be like any other, each with its rule."""
        self.calls: dict[fx.Graph, list[ModuleCall]] = {}
        """The modules that each graph calls, inner ones before those around them."""
        self.sums: list[tuple[fx.Node, fx.Node, fx.Node, Tensor]] = []
        """Sums of two activations: the node, its two sources and the identities of the result."""

    def frozen_like(self, like: Any) -> Any:
        """Frozen identities in the structure of an operation's result."""
        return tree_map_only(Tensor, lambda t: torch.full((), FROZEN).expand(t.shape), like)

    def refuse(self, node: fx.Node, args: Any, what: str, kind: Kind = Kind.NOT_SUPPORTED) -> Any:
        """Freeze whatever the operation reads, and its result; returns the identities of that.

        ``what`` says, after the operation's name, what it does that channels must stay for.
        """
        return self.freeze_around(node, args, self.reason(node, what, kind))

    def freeze_around(self, node: fx.Node, args: Any, reason: Reason) -> Any:
        """Freeze whatever the operation reads, the tensors that it uses, and its result; returns its identities."""
        for leaf in tree_leaves(args):
            if isinstance(leaf, Tensor):
                self.ids.freeze(leaf, reason)
        if node.op == "call_module":
            self.leave_whole(self.modules[str(node.target)], reason)
        for source in node.all_input_nodes:
            if source.op == "get_attr":
                self.leave_tensor_whole(str(source.target), reason)
        return self.frozen_like(info(node).result)

    def freeze(self, node: fx.Node, ids: Tensor, what: str, kind: Kind) -> None:
        """Freeze identities for what an operation does, told after its name."""
        self.ids.freeze(ids, self.reason(node, what, kind))

    def leave_whole(self, module: nn.Module, reason: Reason) -> None:
        """Nothing may be cut from the tensors of a module, nor may the numbers in its attributes change."""
        self.left_whole.update(dict.fromkeys(module.modules(), reason))
        for tensor in (*module.parameters(), *module.buffers()):
            self.uncuttable.setdefault(id(tensor), reason)

    def leave_tensor_whole(self, name: str, reason: Reason) -> None:
        """Nothing may be cut from one parameter or buffer."""
        path, _, leaf = name.rpartition(".")
        self.uncuttable.setdefault(id(getattr(self.modules[path], leaf, None)), reason)

    def axis(
        self,
        owner: str,
        role: Role,
        vector: Tensor,
        tensors: tuple[tuple[str, int], ...] = (),
        counted: Counted | None = None,
    ) -> Tensor:
        """Note that ``vector`` lies on an axis of ``owner``; one that is used twice has one axis."""
        known = self.axes.setdefault((owner, role), Axis(owner, role, vector, tensors, counted))
        if known.ids is not vector:
            self.ids.merge(known.ids, vector)
        return known.ids

    @cached_property
    def _kept(self) -> set[int]:
        """The modules that the user wants to keep, by id."""
        return {id(module) for name in self.keep for module in self.modules[name].modules()}

    def kept(self, name: str) -> Reason | None:
        """The reason why a module's outputs stay if the user asked for that, by whichever of its names; else None."""
        holder = name if name in self.modules else name.rpartition(".")[0]
        if not self.keep or id(self.modules[holder]) not in self._kept:
            return None
        return Reason(Kind.KEPT_BY_USER, f"{name!r} is kept by keep={list(self.keep)}")

    def describe(self, node: fx.Node) -> str:
        """A name for the operation that a person finds in the model's source."""
        if node.op == "call_module":
            return f"{node.target!r} ({type(self.modules[str(node.target)]).__name__})"
        if node.target is size_in_python:
            return "Python code"
        return getattr(node.target, "__name__", str(node.target))

    def reason(self, node: fx.Node, what: str, kind: Kind) -> Reason:
        """What an operation does that channels must stay for, with its name and the line of source it comes from."""
        return Reason(kind, f"{self.describe(node)} {what}", info(node).source_line)
