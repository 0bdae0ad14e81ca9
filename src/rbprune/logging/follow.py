"""Reading the log of a run while another process writes it: only whole lines, from where the last look ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rbprune.errors import CheckpointError
from rbprune.logging.events import parse_event
from rbprune.utils.plain_file import is_missing, open_plain

_MARK = 256
"""How many bytes before the place that was reached tell whether it is still the same log."""


class EventFollower:
    """All events of a log so far, more of them at every ``look``.

    A line that is not whole yet waits for the next look. A log that was put back or begun anew (a resumed run does
    that) is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[dict[str, Any]] = []
        self.damaged = 0
        """Whole lines that hold no event."""
        self._forget()

    def _forget(self) -> None:
        self.events, self.damaged = [], 0
        self._place, self._mark, self._file = 0, b"", (0, 0)

    def look(self) -> int:
        """Read what was written since the last look; returns how many events are new, all where the log is another."""
        try:
            with open_plain(self.path, CheckpointError) as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != self._file or not self._is_same(file.seek(0, 2), file):
                    self._forget()
                    self._file = (found.st_dev, found.st_ino)
                file.seek(self._place)
                content = file.read()
        except CheckpointError as error:
            if not is_missing(error):
                raise
            self._forget()
            return 0
        whole = content[: content.rfind(b"\n") + 1]
        before = len(self.events)
        for line in whole.splitlines():
            event = parse_event(line)
            if event is not None:
                self.events.append(event)
            elif line.strip():
                self.damaged += 1
        self._place += len(whole)
        self._mark = (self._mark + whole)[-_MARK:]
        return len(self.events) - before

    def _is_same(self, size: int, file: Any) -> bool:
        """Whether the log still holds, before the place that was reached, what was read there."""
        if size < self._place:
            return False
        file.seek(self._place - len(self._mark))
        return bool(file.read(len(self._mark)) == self._mark)
