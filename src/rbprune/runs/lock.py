"""One run, one process: who works on a run folder says so in it, and nobody else does until it is over."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rbprune.errors import CheckpointError
from rbprune.runs.folder import RunFolder
from rbprune.utils.files import write_errors
from rbprune.utils.live_processes import ProcessId
from rbprune.utils.plain_file import read_if_there
from rbprune.utils.processes import group_name, is_first, is_restarted


@dataclass(frozen=True)
class Holder:
    """The process that holds, or held, a run, and the command that it was started by."""

    process: ProcessId
    command: tuple[str, ...] = ()
    group: str | None = None
    """What torchrun calls the processes that were started together, where it did."""

    @property
    def is_over(self) -> bool:
        """Whether it works no longer: it is dead or, where that cannot be seen because it ran on another machine,
        torchrun has started its group anew, which it does only after the end of all processes of the group."""
        succeeded = is_restarted() and self.group is not None and self.group == group_name()
        return self.process.is_dead or (succeeded and not self.process.is_here)


@contextmanager
def locked(run: RunFolder, command: Sequence[str] = ()) -> Iterator[None]:
    """Inside, this process alone works on the run; of several that train together the first one says so for all.

    The folder is made where there is none, and goes again if nothing was written into it.
    """
    if not is_first():
        yield
        return
    new = [path for path in (run.path, *run.path.parents) if not path.exists()]
    with write_errors(run.path, *run.path.parents):
        run.path.mkdir(parents=True, exist_ok=True)
    try:
        with write_errors(run.lock_file):
            _take(run, Holder(ProcessId.own(), tuple(command), group_name()))
        try:
            yield
        finally:
            _give_back(run.lock_file)
    finally:
        with suppress(OSError):  # not empty: something was written
            for path in new:
                path.rmdir()


def read_holder(run: RunFolder) -> Holder | None:
    """Who holds the run, or held it when it was killed; None where nobody did or nobody can tell."""
    content = read_if_there(run.lock_file, CheckpointError)
    return None if content is None else _parse(content)


def _parse(content: bytes) -> Holder | None:
    try:
        raw = json.loads(content)
        process = ProcessId(str(raw["host"]), int(raw["pid"]), None if raw["began"] is None else int(raw["began"]))
        group = raw.get("group")
        return Holder(process, tuple(str(word) for word in raw["command"]), None if group is None else str(group))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _take(run: RunFolder, own: Holder) -> None:
    """Write the lock, unless a process that lives, or may live, has written it.

    The system's lock on the file is held only while that is found out: of two processes that find the lock of a dead
    one, one goes first. What dies with its process would be inherited by the workers of a data loader.
    """
    while True:
        if run.lock_file.is_symlink():
            raise CheckpointError(
                f"{run.lock_file} is a link, and where it leads would be written over; no run of yours has left it: "
                f"rm {shlex.quote(str(run.lock_file))}"
            )
        descriptor = os.open(run.lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_still(descriptor, run.lock_file):
                continue  # given back in between
            holder = _parse(os.pread(descriptor, 1 << 20, 0))
            if holder is not None and not holder.is_over:
                raise _held(run, holder)
            content = json.dumps({**asdict(own.process), "command": own.command, "group": own.group}).encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, content, 0)
            os.fsync(descriptor)
            return
        finally:
            os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _give_back(path: Path) -> None:
    """Remove the lock, if it is still this process's own: the folder may have been deleted and made again."""
    with suppress(OSError):
        holder = _parse(path.read_bytes())
        if holder is None or holder.process == ProcessId.own():
            path.unlink()


def _held(run: RunFolder, holder: Holder) -> CheckpointError:
    process, words = holder.process, shlex.join(holder.command) or "rbprune"
    if process.is_here:
        return CheckpointError(
            f"process {process.pid} works on {run} already ({words}); wait for it, or stop it: kill {process.pid}"
        )
    return CheckpointError(
        f"process {process.pid} on {process.host} works on {run} ({words}), as far as can be seen from here; if it has "
        f"ended, remove its lock: rm {shlex.quote(str(run.lock_file))}"
    )
