"""Tensors that are used in a way that no rule sees: whatever lies along them may not be removed."""

from __future__ import annotations

from rbprune.graph.cutting.surgery import find_tensor, makers_of_computed, stored_tensors
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.sites import Axis


def freeze_shared_tensors(propagation: Propagation) -> None:
    """Freeze axes along tensors that are shared, computed, used twice, or used by something without a rule."""
    model = propagation.modules[""]
    uncuttable = {**propagation.uncuttable, **_shared(propagation)}
    seen: dict[tuple[int, int], Axis] = {}
    for axis in propagation.axes.values():
        for name, dim in axis.tensors:
            tensors = stored_tensors(model, name, plain=name == axis.owner)
            if not tensors and find_tensor(model, name)[2] is None:
                continue
            if not tensors:
                text = f"{name!r} is computed by {makers_of_computed(model, name)}"
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
    first: dict[int, tuple[int, str, str]] = {}
    found = {}
    for path, module in propagation.modules.items():
        for leaf, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                holder, key, name = first.setdefault(id(tensor), (id(module), leaf, f"{path}.{leaf}".lstrip(".")))
                if (holder, key) != (id(module), leaf):
                    other = f"{path}.{leaf}".lstrip(".")
                    found[id(tensor)] = Reason(Kind.SHARED, f"{name!r} is shared with {other!r}")
    return found
