"""Widths that a forward reads from its own modules: plain numbers to a trace, but a cut changes them.

Python finds an attribute by looking its name up in the module's ``__dict__``, and a dictionary compares the name that
is asked for with the key that it holds. While a forward is followed, the key of a width is a ``_WatchedName``: a string
like any other, whose comparison notes who asks. No class is changed for that, neither torch's nor the user's, so two
threads can trace two models at once, and a module looks the same to code that prints, copies or searches it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from torch import nn

from rbprune.graph.layer_table import widths_of
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.size_attributes import size_names


class WidthReads:
    """Notes which modules are asked for which width, by anybody but themselves, during one trace."""

    def __init__(self) -> None:
        self.found: dict[tuple[nn.Module, str], None] = {}
        self.sizes: dict[tuple[nn.Module, str], set[tuple[CodeType, int]]] = {}
        """For other numbers among the attributes of modules: the code and the instructions that ask for them."""
        self._paused = False

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Inside, reads of the widths of the model's modules are noted.

        A width that is no plain attribute of an instance (a property, a default of the class) is let be.
        """
        watched: list[nn.Module] = []
        try:
            for module in model.modules():
                if self.watch(module):
                    watched.append(module)
            yield
        finally:
            for module in watched:
                _rename(vars(module), {key: str(key) for key in vars(module) if isinstance(key, _WatchedName)})

    def watch(self, module: nn.Module) -> bool:
        """Note reads of the widths of one module from now on, and say whether it has any."""
        widths, own = widths_of(module), vars(module)
        watched: dict[str, str] = {n: _WatchedName(n, module, self) for n in widths if n in own and _is_own(module, n)}
        for name in size_names(module):
            if name not in widths and _is_own(module, name):
                watched[name] = _WatchedName(name, module, self, is_width=False)
        if watched:
            _rename(own, watched)
        return bool(watched)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, what is read is not noted: it is not the model's forward that asks."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def note(self, module: nn.Module, name: str) -> None:
        """Somebody reads a width of a module."""
        if not self._paused:
            self.found[module, name] = None

    def note_size(self, module: nn.Module, name: str, frame: FrameType) -> None:
        """Somebody reads, or writes, another number of a module."""
        if not self._paused:
            self.sizes.setdefault((module, name), set()).add((frame.f_code, frame.f_lasti))


def _is_own(module: nn.Module, name: str) -> bool:
    """Whether an attribute is one of the instance alone."""
    return not hasattr(type(module), name)


class _WatchedName(str):
    """The name of a width, which tells ``reads`` when somebody else than the module itself asks for it; or of another
    number, which tells whenever anybody does."""

    def __new__(cls, name: str, module: nn.Module, reads: WidthReads, is_width: bool = True) -> _WatchedName:
        self = super().__new__(cls, name)
        self.module, self.reads, self.is_width = module, reads, is_width
        return self

    module: nn.Module
    reads: WidthReads
    is_width: bool

    def __eq__(self, other: object) -> bool:
        same = str.__eq__(self, other)
        if same is True and not self.is_width:
            self.reads.note_size(self.module, str(self), sys._getframe(1))
        elif same is True and sys._getframe(1).f_locals.get("self") is not self.module:
            self.reads.note(self.module, str(self))
        return same

    __hash__ = str.__hash__

    def __reduce__(self) -> Any:
        return str, (str(self),)  # in a copy of the module it is a plain name


def _rename(attributes: dict[str, Any], names: dict[str, str]) -> None:
    """Put other keys in place of some, in place and in the same order."""
    renamed = [(names.get(key, key), value) for key, value in attributes.items()]
    attributes.clear()
    attributes.update(renamed)


def freeze_read_widths(propagation: Propagation, reads: WidthReads) -> None:
    """Freeze the channels whose number the forward reads: what it computes with must stay as it is.

    So must numbers in attributes of modules that are also used where they are not followed.
    """
    for counting in propagation.axes.values():
        holder = propagation.modules[counting.counted.module] if counting.counted else None
        if holder is not None and holder in propagation.left_whole:
            propagation.ids.freeze(counting.ids, propagation.left_whole[holder])
    names = {module: name for name, module in reversed(propagation.modules.items())}
    for module, attribute in reads.found:
        name = names.get(module)
        for role in widths_of(module)[attribute]:
            axis = propagation.axes.get((name, role)) if name is not None else None
            if axis is not None:
                text = f"the forward reads {name}.{attribute}, which a cut would change"
                propagation.ids.freeze(axis.ids, Reason(Kind.SIZE_USED, text))
