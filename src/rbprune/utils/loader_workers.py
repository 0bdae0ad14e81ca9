"""Workers of a data loader that died, in words: torch says so wherever the program happens to be."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rbprune.errors import DataError, first_line

_SIGNAL_SECONDS = 0.05
"""Within this time the signal of a process that has died arrives."""


def worker_death(error: Exception) -> DataError | None:
    """The error to raise in place of one by which torch tells that a worker died; None for any other.

    >>> print(worker_death(RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")))
    a worker of the data loader died: DataLoader worker (pid 7) is killed by signal: Killed.; the system ends processes
    when memory runs out: use fewer workers (data.workers, num_workers) or smaller batches; for a bus error make
    /dev/shm larger (docker run --shm-size)
    """
    text = str(error)
    told = isinstance(error, RuntimeError) and "DataLoader worker" in text
    told = told and ("killed by signal" in text or "exited unexpectedly" in text)
    if not told and not (isinstance(error, OSError | EOFError) and _while_receiving(error)):
        return None
    return DataError(
        f"a worker of the data loader died: {first_line(error).strip()}; the system ends processes when memory runs "
        "out: use fewer workers (data.workers, num_workers) or smaller batches; for a bus error make /dev/shm larger "
        "(docker run --shm-size)"
    )


def _while_receiving(error: Exception) -> bool:
    """Whether an error came up while the loader took over what a worker had sent: it was gone before it was fetched."""
    frames = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(code.co_name == "_try_get_data" and code.co_filename.endswith("dataloader.py") for code in frames)


@contextmanager
def worker_deaths_named() -> Iterator[None]:
    """Inside, the death of a worker is an error of ours with the remedy."""
    with _named_once(), _named_once():  # torch tells it by a signal too, which may come while the first is dealt with
        yield


@contextmanager
def _named_once() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, EOFError) as error:
        death = worker_death(error)
        if death is None:
            raise
        with suppress(RuntimeError):
            time.sleep(_SIGNAL_SECONDS)
        raise death from error
