"""Lenient readers for the fields of events, which an older or unfinished run may lack, or hold as null or nonsense.

None of them raises: what cannot be read becomes empty, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rbprune.utils.numbers import as_number


def as_mapping(value: Any) -> Mapping[Any, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """The items of ``value`` if it is a list or a tuple, else an empty list."""
    return list(value) if isinstance(value, (list, tuple)) else []


def as_numbers(value: Any) -> list[float]:
    """The finite numbers among the items of ``value``, empty if it is no list."""
    return [item for item in map(as_number, as_list(value)) if item is not None]


def as_pair(value: Any) -> tuple[float | None, float | None]:
    """The two numbers in ``value``, each None where it is unknown.

    >>> as_pair([16, None]), as_pair([1, 2, 3]), as_pair("?")
    ((16.0, None), (None, None), (None, None))
    """
    items = [as_number(item) for item in as_list(value)]
    return (items[0], items[1]) if len(items) == 2 else (None, None)


def as_text(value: Any) -> str:
    """``value`` as text, which is empty for None."""
    return "" if value is None else str(value)
