"""Which process left a file behind, and whether it still lives."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessId:
    """A process by its machine, its number, and when it began (numbers are given again; None: nobody can tell)."""

    host: str
    pid: int
    began: int | None = None

    @staticmethod
    def own() -> ProcessId:
        """The process that asks."""
        return ProcessId(socket.gethostname(), os.getpid(), _began(os.getpid()))

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this machine; only of these it can be told whether they live."""
        return self.host == socket.gethostname()

    @property
    def is_dead(self) -> bool:
        """Whether it is certain that it has ended: it ran here, and nothing with its number that began then does."""
        if not self.is_here:
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass
        return self.began is not None and _began(self.pid) not in (None, self.began)


def _began(pid: int) -> int | None:
    """When a process began, in ticks since the machine did, as Linux tells it; None on another system."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" and pid != os.getpid() else int(fields[19])


def mark() -> str:
    """This process in the name of a temporary file."""
    return f"{re.sub(r'[^A-Za-z0-9-]', '_', socket.gethostname())}-{os.getpid()}"


def is_of_dead_process(marked: str) -> bool:
    """Whether a mark is that of a process of this machine that has ended; a bare number is one of before there were
    marks.

    >>> is_of_dead_process(mark()), is_of_dead_process("elsewhere-1"), is_of_dead_process("999999999")
    (False, False, True)
    """
    host, _, pid = marked.rpartition("-")
    here = mark().rpartition("-")[0]
    return pid.isdecimal() and host in ("", here) and ProcessId(socket.gethostname(), int(pid)).is_dead
