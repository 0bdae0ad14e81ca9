"""A plan with one thing in it changed, as damage or a careless editor changes it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

STRANGE = (-1, 0, 1, 2**40, 10**400, 1.5, float("nan"), True, None, "", "x", [], {}, [[]], {"0": [0]}, [-1], [1, 1])
"""Values that have no place in a plan, or only in another one."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of nested tables and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(plan: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy with one part replaced, taken out, doubled, renamed or moved."""
    changed = copy.deepcopy(plan)
    path = chance.choice(list(places(changed)))
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    match chance.choice(("replace", "take out", "double", "rename", "nudge", "reverse")):
        case "take out":
            del holder[key]
        case "double" if isinstance(holder, list):
            holder.insert(key, holder[key])
        case "rename" if isinstance(holder, dict):
            name = chance.choice(("", "-1", "9", "weight", f"{key}x", "forward", "out", "groups"))
            holder[name] = holder.pop(key)
        case "nudge" if isinstance(holder[key], int):
            holder[key] += chance.choice((-1, 1))
        case "reverse" if isinstance(holder[key], list):
            holder[key].reverse()
        case _:
            holder[key] = chance.choice(STRANGE)
    return changed
