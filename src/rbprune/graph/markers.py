"""Functions that change nothing and stand in a traced graph where something happens that is no operation."""

from __future__ import annotations

from typing import Any


def size_in_python(number: Any) -> Any:
    """Stands where Python itself needed a size as a plain number: to decide by it, to count to it, to compute."""
    return number


def seen_by_hook(value: Any, module: str) -> Any:
    """Stands where a forward hook of the module of that name sees a value."""
    return value
