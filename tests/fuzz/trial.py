"""Reading many variants of a kind of file, each within a time and within a memory."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rbprune.errors import RbpruneError
from tests.fuzz.kinds import KINDS
from tests.fuzz.mutations import mutate

SECONDS = 10.0
"""One file may take so long to be read or refused, on a machine in use."""
MEMORY = 256 << 20
"""All files have some thousand bytes; reading one may not ask for more memory than this at any time."""


@dataclass
class Outcome:
    """What became of the variants of one kind."""

    kind: str
    count: int = 0
    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    foreign: list[str] = field(default_factory=list)
    """The tracebacks of errors that are not ours."""
    slowest: float = 0.0

    def line(self) -> str:
        """One row of the table in docs/reliability-inputs.md."""
        refused = sum(self.refused.values())
        return (
            f"| {self.kind} | {self.count:,} | {self.read:,} | {refused:,} | {len(self.foreign)} | {self.slowest:.2f} |"
        )


class TooLong(BaseException):
    """Not an Exception, so that nothing that is tested can catch it."""


def fuzz(kind: str, count: int, folder: Path, seed: int = 0) -> Outcome:
    """Read ``count`` variants of the good files of a kind; errors that are not ours are kept."""
    rng = random.Random(f"{kind}{seed}")
    folder.mkdir(parents=True, exist_ok=True)
    good = KINDS[kind].good(folder)
    for data in good:
        KINDS[kind].read(folder, data)
    found = Outcome(kind)
    for number in range(count):
        data = mutate(rng.choice(good), rng)
        found.count += 1
        began = time.perf_counter()
        try:
            with _bounded():
                KINDS[kind].read(folder, data)
            found.read += 1
        except RbpruneError as error:
            found.refused[type(error).__name__] += 1
        except (Exception, TooLong) as error:
            story = "".join(traceback.format_exception(error, limit=-4))
            found.foreign.append(f"{kind} {number}: {data[:200]!r}\n{story}")
        found.slowest = max(found.slowest, time.perf_counter() - began)
    return found


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Inside, what takes too long ends in ``TooLong`` and what takes too much in a ``MemoryError``."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before, limits = signal.signal(signal.SIGALRM, stop), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
