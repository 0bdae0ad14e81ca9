"""The log of a run: one JSON object per line, appended while the run goes, and read back whatever happened to it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rbprune.errors import CheckpointError
from rbprune.utils.files import write_errors
from rbprune.utils.plain_file import read_if_there


class EventScan(NamedTuple):
    """The events of a file, and how many of its lines could not be read."""

    events: list[dict[str, Any]]
    damaged: int
    torn: int = 0
    """1 where the last line is among them and has no end: a crash cut it short, which is no damage."""


def scan_events(path: Path) -> EventScan:
    """Every event of the file that can be read, in order; a missing file has none."""
    content = read_if_there(path, CheckpointError)
    if content is None:
        return EventScan([], 0)
    lines = content.split(b"\n")
    events: list[dict[str, Any]] = []
    damaged = 0
    for line in lines:
        if not line.strip():
            continue
        event = parse_event(line)
        if event is None:
            damaged += 1
        else:
            events.append(event)
    torn = int(bool(lines[-1].strip()) and parse_event(lines[-1]) is None)
    return EventScan(events, damaged, torn)


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The event in one line of a log, or None where it holds none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of ``path``; torn and damaged lines are left out."""
    return scan_events(path).events


class EventLog:
    """Appends events to ``path``, or only keeps them in memory when it is None.

    ``events`` holds everything in the log, including what an earlier process wrote (a resumed run).
    """

    def __init__(self, path: Path | None) -> None:
        self.path = None if path is None else Path(path)
        self.events: list[dict[str, Any]] = []
        self.listen: Callable[[Mapping[str, Any]], None] | None = None
        """Is told of every event that is written."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.events = read_events(self.path)
            _end_torn_line(self.path)

    def write(self, event: str, **fields: Any) -> dict[str, Any]:
        """Append one event and return it as stored: with its time, and as plain JSON values."""
        record: dict[str, Any] = {"time": time.time(), "event": event, **{k: json_value(v) for k, v in fields.items()}}
        if self.path is not None:
            with write_errors(self.path), self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(record, allow_nan=False) + "\n")
        self.events.append(record)
        if self.listen is not None:
            self.listen(record)
        return record


def json_value(value: Any) -> Any:
    """``value`` in the types of JSON: tensors become lists, sets sorted lists, and what is not finite becomes null."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((json_value(item) for item in value), key=str)
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    return str(value)


def _end_torn_line(path: Path) -> None:
    """End a line that a crash cut short, so that the next event is not lost with it."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
