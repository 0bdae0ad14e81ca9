"""Tensors that are used in a way that no rule sees: whatever lies along them may not be removed."""

from __future__ import annotations

from rbprune.graph.cutting.surgery import computed_by, find_tensor, stored
from rbprune.graph.propagation import Walk
from rbprune.graph.reasons import with_remedy
from rbprune.graph.sites import Axis


def freeze_bound(walk: Walk) -> None:
    """Freeze axes along tensors that are shared, computed, used twice, or used by something without a rule."""
    model = walk.modules[""]
    bound = {**walk.bound, **_shared(walk)}
    seen: dict[tuple[int, int], Axis] = {}
    for axis in walk.axes.values():
        for name, dim in axis.tensors:
            if find_tensor(model, name)[2] is None:
                continue
            tensors = stored(model, name, plain=name == axis.owner)
            if not tensors:
                walk.ids.freeze(axis.ids, with_remedy(f"{name!r} is computed by {computed_by(model, name)}"))
            for tensor in tensors:
                if id(tensor) in bound:
                    walk.ids.freeze(axis.ids, bound[id(tensor)])
                other = seen.setdefault((id(tensor), dim), axis)
                if other is not axis:
                    for each in (axis, other):
                        walk.ids.freeze(each.ids, f"{name!r} is used by {other.owner!r} and elsewhere")


def _shared(walk: Walk) -> dict[int, str]:
    """Parameters and buffers with two names: only the model's author can make them whole again."""
    first: dict[int, tuple[int, str, str]] = {}
    found = {}
    for path, module in walk.modules.items():
        for leaf, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                holder, key, name = first.setdefault(id(tensor), (id(module), leaf, f"{path}.{leaf}".lstrip(".")))
                if (holder, key) != (id(module), leaf):
                    other = f"{path}.{leaf}".lstrip(".")
                    found[id(tensor)] = with_remedy(f"{name!r} is shared with {other!r}")
    return found
