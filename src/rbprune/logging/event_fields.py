"""Reading fields that an older or unfinished run may lack, or hold as null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rbprune.utils.numbers import number


def mapping(value: Any) -> Mapping[Any, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    """``value`` as a list if it is a list or tuple, else an empty one."""
    return list(value) if isinstance(value, (list, tuple)) else []


def numbers(value: Any) -> list[float]:
    """The finite numbers of a list."""
    return [item for item in map(number, sequence(value)) if item is not None]


def pair(value: Any) -> tuple[float | None, float | None]:
    """Two numbers, each None where unknown."""
    items = [number(item) for item in sequence(value)]
    return (items[0], items[1]) if len(items) == 2 else (None, None)


def text(value: Any) -> str:
    """``value`` as text, nothing for None."""
    return "" if value is None else str(value)
