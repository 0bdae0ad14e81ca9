"""Python's search for garbage, left out while many objects are made that are all needed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Inside, Python does not look for cycles of objects that nobody holds, which it else does again and again.

    For what is short and keeps what it makes. Afterwards the collector is on again, if it was; where several threads
    are inside at once, from when the first of them leaves.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
