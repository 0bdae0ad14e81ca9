"""Attributes of modules that hold the number of some channels: an int, or an element of a list or tuple of them.

Each goes by a key: ``width``, or ``splits[1]`` for an element. Plans use the same words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import nn

_KEY = re.compile(r"([A-Za-z_]\w*)(?:\[(0|[1-9]\d{0,4})\])?")


@dataclass(frozen=True)
class Counted:
    """The attribute that counts the positions of an axis: of which module, by which key."""

    module: str
    key: str

    @property
    def owner(self) -> str:
        """What the axis goes by.

        >>> Counted("layer1.0", "splits[1]").owner
        'layer1.0.splits[1]'
        """
        return f"{self.module}.{self.key}" if self.module else self.key


def size_names(module: nn.Module) -> list[str]:
    """The attributes of a module that could hold numbers of channels; of torch's own modules none."""
    if type(module).__module__.startswith("torch."):
        return []
    return [name for name, value in vars(module).items() if type(value) in _KINDS and name[0] != "_" and _holds(value)]


def size_of(module: nn.Module, key: str) -> int | None:
    """The number that a key names; None where there is no such number.

    >>> net = nn.Module()
    >>> net.width, net.splits = 8, [3, 5]
    >>> size_of(net, "width"), size_of(net, "splits[1]"), size_of(net, "splits[2]"), size_of(net, "splits")
    (8, 5, None, None)
    """
    value, index = _held(module, key)
    if index is None:
        return value if _is_size(value) else None
    return value[index] if isinstance(value, list | tuple) and index < len(value) and _is_size(value[index]) else None


def set_size(module: nn.Module, key: str, size: int) -> None:
    """Change the number that a key names; a list becomes another one, since others may hold it too.

    >>> net = nn.Module()
    >>> net.splits = (3, 5)
    >>> set_size(net, "splits[1]", 4)
    >>> net.splits
    (3, 4)
    """
    value, index = _held(module, key)
    name = key.partition("[")[0]
    if index is None:
        setattr(module, name, size)
    else:
        setattr(module, name, type(value)([*value[:index], size, *value[index + 1 :]]))


def _held(module: nn.Module, key: str) -> tuple[Any, int | None]:
    """What the attribute of a key holds, and the number of the element that the key names."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None, None
    return vars(module).get(found[1]), None if found[2] is None else int(found[2])


_KINDS = {int, list, tuple}


def _holds(value: Any) -> bool:
    return _is_size(value) or (type(value) in (list, tuple) and len(value) > 0 and all(map(_is_size, value)))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
