"""Ctrl-C and SIGTERM become a flag that the training loop looks at between steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from rbprune.errors import RbpruneError


class Interrupted(RbpruneError):
    """The run was asked to stop, and saved a checkpoint first."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class Signals:
    """Inside, the first SIGINT or SIGTERM is only noted; a second one acts as usual."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}
