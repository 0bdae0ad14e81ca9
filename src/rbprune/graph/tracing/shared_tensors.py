"""Tensors that are used in a way that no rule sees: whatever lies along them may not be removed."""

from __future__ import annotations

from torch import nn

from rbprune.graph.cutting.surgery import find_tensor, makers_of_computed, stored_tensors
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.sites import Axis


def freeze_shared_tensors(propagation: Propagation) -> None:
    """Freeze axes along tensors that are shared, computed, used twice, or used by something without a rule."""
    uncuttable = {**propagation.uncuttable, **_shared(propagation)}
    seen: dict[tuple[int, int], Axis] = {}
    for axis in propagation.axes.values():
        for name, dim in axis.tensors:
            path, _, leaf = name.rpartition(".")
            holder = propagation.modules[path]
            tensors = stored_tensors(holder, leaf, plain=name == axis.owner)
            if not tensors and find_tensor(holder, leaf)[2] is None:
                continue
            if not tensors:
                text = f"{name!r} is computed by {makers_of_computed(holder, leaf)}"
                propagation.ids.freeze(axis.ids, Reason(Kind.COMPUTED, text))
            for tensor in tensors:
                if id(tensor) in uncuttable:
                    propagation.ids.freeze(axis.ids, uncuttable[id(tensor)])
                other = seen.setdefault((id(tensor), dim), axis)
                if other is not axis:
                    reason = Reason(Kind.USED_ELSEWHERE, f"{name!r} is used by {other.owner!r} and elsewhere")
                    for each in (axis, other):
                        propagation.ids.freeze(each.ids, reason)


def _shared(propagation: Propagation) -> dict[int, Reason]:
    """Parameters and buffers with two names: only the model's author can make them whole again."""
    first: dict[int, tuple[nn.Module, str, str]] = {}
    found = {}
    for path, module in propagation.modules.items():
        for leaf, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                holder, where, key = first.setdefault(id(tensor), (module, path, leaf))
                if holder is not module or key != leaf:
                    name, other = f"{where}.{key}".lstrip("."), f"{path}.{leaf}".lstrip(".")
                    found[id(tensor)] = Reason(Kind.SHARED, f"{name!r} is shared with {other!r}")
    return found
