"""What the fields of a plan must look like, checked before anything is made of them.

A plan may come from another machine or a damaged disk. ``check_fields`` is the one place that says what each of its
fields holds; a field that is added to ``Plan`` gets its line in ``FIELDS``. Whether a plan fits a network is the
matter of ``check_plan``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rbprune.errors import ModelError

MOST = 2**31 - 1
"""No axis of a tensor is longer than this; a larger number in a plan is damage."""
_DIMENSION = re.compile(r"0|[1-9][0-9]?")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse fields that no plan has: wrong types, negative, repeated, unsorted or impossible positions and widths.

    >>> check_fields({"tensors": {"a.weight": {"0": [2, 1]}}})
    Traceback (most recent call last):
    rbprune.errors.ModelError: the plan is damaged: tensors, 'a.weight', dimension '0': position 1 follows 2, and
    positions go up; copy plan.json anew, or repeat the run
    """
    for name, check in FIELDS.items():
        if name in fields:
            check(fields[name])


def checksum(fields: Mapping[str, Any]) -> str:
    """The SHA-256 of all fields, whatever the order of their keys and the spaces between them."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for ``object_pairs_hook``; a key that comes twice is refused: readers take either one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _check_tensors(field: Any) -> None:
    for name, dims in _table(field, "tensors").items():
        for dim, kept in _table(dims, f"tensors, {name!r}").items():
            where = f"tensors, {name!r}, dimension {dim!r}"
            if not _DIMENSION.fullmatch(dim):
                raise _damaged(where, "a dimension is a number from 0 on")
            _check_positions(kept, where)
            if not kept:
                raise _damaged(where, "no position is kept")


def _check_widths(field: Any) -> None:
    for name, widths in _table(field, "widths").items():
        for axis, width in _table(widths, f"widths, {name!r}").items():
            if not _is_whole(width) or not 1 <= width <= MOST:
                raise _damaged(f"widths, {name!r}, {axis!r}", f"{_short(width)} is no width (1 to {MOST})")


def _check_sites(field: Any) -> None:
    for name, site in _table(field, "sites").items():
        where = f"sites, {name!r}"
        table = _table(site, where)
        if not {"channels", "kept"} <= table.keys():
            raise _damaged(where, "it has 'channels' and 'kept', and nothing else is known of it")
        channels, kept = table["channels"], table["kept"]
        if not _is_whole(channels) or not 1 <= channels <= MOST:
            raise _damaged(where, f"{_short(channels)} is no number of channels")
        _check_positions(kept, where)
        if kept and kept[-1] >= channels:
            raise _damaged(where, f"channel {kept[-1]} is kept of {channels}, which are numbered from 0")


def _check_blocks(field: Any) -> None:
    for name, block in _table(field, "blocks").items():
        where = f"blocks, {name!r}"
        table = _table(block, where)
        if table.keys() != {"modules", "layers"}:
            raise _damaged(where, "it has 'modules' and 'layers', and nothing else")
        for path, steps in _table(table["modules"], f"{where}, modules").items():
            if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
                raise _damaged(f"{where}, modules, {path!r}", f"{_short(steps)} is no list of names")
        if not isinstance(table["layers"], list):
            raise _damaged(f"{where}, layers", f"{_short(table['layers'])} is no list of layers")
        for layer in table["layers"]:
            _check_layer(_table(layer, f"{where}, layers"), f"{where}, layers")


def _check_layer(layer: dict[str, Any], where: str) -> None:
    """A convolution or linear layer that is gone, with what it cost."""
    words = [layer.get(key) for key in ("name", "kind")]
    counts: list[Any] = [layer.get(key) for key in ("macs", "params")]
    if layer.keys() != {"name", "kind", "macs", "params"} or not all(isinstance(word, str) for word in words):
        raise _damaged(where, f"{_short(layer)} is no layer: it has name, kind, macs and params")
    if not all(_is_whole(count) and 0 <= count < 2**63 for count in counts):
        raise _damaged(where, f"{_short(counts)} are no numbers of MACs and parameters")


FIELDS: Mapping[str, Callable[[Any], None]] = {
    "tensors": _check_tensors,
    "widths": _check_widths,
    "sites": _check_sites,
    "blocks": _check_blocks,
}


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _damaged(where, f"{_short(value)} is no table of names")
    return value


def _check_positions(kept: Any, where: str) -> None:
    if not isinstance(kept, list):
        raise _damaged(where, f"{_short(kept)} is no list of positions")
    before = -1
    for position in kept:
        if not _is_whole(position) or not 0 <= position <= MOST:
            raise _damaged(where, f"{_short(position)} is no position (0 to {MOST})")
        if position <= before:
            raise _damaged(where, f"position {position} follows {before}, and positions go up")
        before = position


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Any) -> str:
    """The value as it is written, or the beginning of it."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of more than 30 digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _damaged(where: str, why: str) -> ModelError:
    return ModelError(f"the plan is damaged: {where}: {why}; copy plan.json anew, or repeat the run")
