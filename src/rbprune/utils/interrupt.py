"""Ctrl-C and SIGTERM: while a run trains they become a flag that is looked at between steps, else they end it at once.

A loader that hangs would hold up that flag for ever. Whoever waits for data says so (``awaited``), and a signal waits
with him for ``PATIENCE`` seconds only.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

from rbprune.errors import RbpruneError

T = TypeVar("T")
PATIENCE = 3.0
"""Seconds that a signal waits for a batch."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS = 0.1
_waiting_since: list[float] = []
"""When the main thread began to wait for data; nested waits are one."""


class Interrupted(RbpruneError):
    """The run was asked to stop, and saved a checkpoint first."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.exit_code = 128 + number


class StopNow(KeyboardInterrupt):
    """A signal that nobody has noted for later; like Ctrl-C it passes by whoever catches ordinary errors."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


class StoppedWaiting(StopNow):
    """A signal that has waited long enough for a batch; it ends the wait between two steps."""


def number_of(stop: KeyboardInterrupt) -> int:
    """The signal behind an exception; Python's own is that of Ctrl-C."""
    return stop.number if isinstance(stop, StopNow) else signal.SIGINT


class _Handlers:
    """Handlers for both signals, as long as it lasts; only the main thread has any."""

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}


class SignalsStop(_Handlers):
    """Inside, a signal ends what is going on at once, by an exception that knows its number."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker that was forked off, and has nothing to say
            os._exit(128 + number)
        raise StopNow(number)


class Signals(_Handlers):
    """Inside, the first SIGINT or SIGTERM is only noted; a second one acts as usual.

    Noted while the main thread waits for data, it ends a wait that lasts longer than ``PATIENCE``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: int | None = None
        self._over = threading.Event()
        self._gives_up = False

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        super().__exit__(*exc)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            threading.Thread(target=self._watch, args=(number, time.monotonic()), daemon=True).start()
        elif self._gives_up:
            self._gives_up = False
            if _waiting_since:
                raise StoppedWaiting(self.received)
        else:
            self._restore()
            signal.raise_signal(number)

    def _watch(self, number: int, noted: float) -> None:
        """From another thread: wake the main thread where it has waited for data for too long since the signal."""
        while not self._over.wait(_LOOK_SECONDS):
            since = max([noted, *_waiting_since[:1]])
            if _waiting_since and time.monotonic() - since > PATIENCE and not self._over.is_set():
                self._gives_up = True
                signal.pthread_kill(threading.main_thread().ident or 0, number)
                noted = time.monotonic()


@contextmanager
def _waiting() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _waiting_since.append(time.monotonic())
    try:
        yield
    finally:
        _waiting_since.pop()


def awaited(batches: Iterable[T]) -> Iterator[T]:
    """The same batches; while one is waited for, a signal may end the wait.

    >>> list(awaited([1, 2]))
    [1, 2]
    """
    with _waiting():
        iterator = iter(batches)
    while True:
        with _waiting():
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch
