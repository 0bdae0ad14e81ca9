"""Widths that a forward reads from its own modules: plain numbers to a trace, but a cut changes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.sites import Role

ROLES: dict[str, tuple[Role, ...]] = {
    **dict.fromkeys(("out_channels", "out_features"), ("out", "along")),
    **dict.fromkeys(("in_channels", "in_features"), ("in", "along")),
    **dict.fromkeys(("num_features", "num_channels", "num_parameters"), ("along",)),
}
"""Attributes that follow a cut, and the axes that they count."""

Reads = list[tuple[nn.Module, str]]
_reads: Reads = []


@contextmanager
def reads(model: nn.Module) -> Iterator[Reads]:
    """Inside, notes which modules are asked for their width, by anybody but themselves.

    The classes get properties for that time; a module must keep its class, which a forward may ask for.
    """
    _reads.clear()
    kinds: set[Any] = {type(module) for module in model.modules() if not vars(module).keys().isdisjoint(ROLES)}
    changed = [(kind, name) for kind in kinds for name in ROLES if not hasattr(kind, name)]
    try:
        for kind, name in changed:
            setattr(kind, name, _noting(name))
        yield _reads
    finally:
        for kind, name in changed:
            delattr(kind, name)


@contextmanager
def unnoticed() -> Iterator[None]:
    """Inside, what is read is not noted: it is not the model's forward that asks."""
    before = len(_reads)
    try:
        yield
    finally:
        del _reads[before:]


def _noting(name: str) -> property:
    def get(self: nn.Module) -> Any:
        try:
            value = vars(self)[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None
        if sys._getframe(1).f_locals.get("self") is not self:
            _reads.append((self, name))
        return value

    def put(self: nn.Module, value: Any) -> None:
        vars(self)[name] = value

    return property(get, put)


def freeze_read(propagation: Propagation, found: Reads) -> None:
    """What the forward computes with must stay as it is."""
    names = {module: name for name, module in reversed(propagation.modules.items())}
    for module, attribute in dict.fromkeys(found):
        name = names.get(module)
        for role in ROLES[attribute]:
            axis = propagation.axes.get((name, role)) if name is not None else None
            if axis is not None:
                text = f"the forward reads {name}.{attribute}, which a cut would change"
                propagation.ids.freeze(axis.ids, Reason(Kind.SIZE_USED, text))
