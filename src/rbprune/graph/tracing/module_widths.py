"""Widths that a forward reads from its own modules: plain numbers to a trace, but a cut changes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from rbprune.graph.layer_table import widths_of
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason

Reads = list[tuple[nn.Module, str]]
_reads: Reads = []


@contextmanager
def reads(model: nn.Module) -> Iterator[Reads]:
    """Inside, notes which modules are asked for their width, by anybody but themselves.

    The classes get properties for that time; a module must keep its class, which a forward may ask for.
    """
    _reads.clear()
    watched: set[tuple[Any, str]] = {
        (type(module), name) for module in model.modules() for name in widths_of(module) if name in vars(module)
    }
    changed = [(kind, name) for kind, name in watched if not hasattr(kind, name)]
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
        for role in widths_of(module)[attribute]:
            axis = propagation.axes.get((name, role)) if name is not None else None
            if axis is not None:
                text = f"the forward reads {name}.{attribute}, which a cut would change"
                propagation.ids.freeze(axis.ids, Reason(Kind.SIZE_USED, text))
