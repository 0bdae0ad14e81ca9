"""Reading files that may be anything: only plain files are opened, and what goes wrong is an error of ours.

A pipe would be waited for, and a link to a device read, for ever.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from rbprune.errors import RbpruneError
from rbprune.utils.names import printable

_KINDS = {
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def why_not_plain(mode: int) -> str | None:
    """What a file of this mode is where it is no plain file, in words.

    >>> why_not_plain(os.stat("/dev/null").st_mode), why_not_plain(stat.S_IFREG)
    ('a device', None)
    """
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no plain file")


def open_plain(path: str | Path, error: type[RbpruneError]) -> BinaryIO:
    """Open a plain file for reading; anything else is refused at once, without waiting for it."""
    try:
        what = why_not_plain(os.stat(path).st_mode)  # before it is opened, which can do things to a device
        descriptor = -1 if what is not None else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as cause:
        why = (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
        raise error(
            f"{printable(path)}: cannot be read: {why}; check the path, the disk and who may read it"
        ) from cause
    if what is None and (what := why_not_plain(os.fstat(descriptor).st_mode)) is not None:
        os.close(descriptor)  # exchanged in between
    if what is not None:
        raise error(f"{printable(path)}: is {what}, not a plain file; put the file itself there, or remove it")
    return open(descriptor, "rb")


def read_plain(path: str | Path, error: type[RbpruneError], *, most: int | None = None) -> bytes:
    """All bytes of a plain file; one of more than ``most`` bytes is refused before it is read."""
    with open_plain(path, error) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise error(
                f"{printable(path)}: has {size:,} bytes, where at most {most:,} make sense; replace or remove it"
            )
        try:
            return file.read()
        except (OSError, MemoryError) as cause:
            why = f"{size:,} bytes are more than the memory" if isinstance(cause, MemoryError) else str(cause)
            raise error(f"{printable(path)}: cannot be read: {why}; check the disk") from cause


def is_missing(error: RbpruneError) -> bool:
    """Whether an error of this module says that there is no such file."""
    return isinstance(error.__cause__, FileNotFoundError)


def read_if_there(path: str | Path, error: type[RbpruneError]) -> bytes | None:
    """All bytes of a plain file, or None where there is none."""
    try:
        return read_plain(path, error)
    except error as found:
        if is_missing(found):
            return None
        raise


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def read_table(path: str | Path, error: type[RbpruneError], *, most: int = 1 << 24) -> dict[str, Any]:
    """The table (object) that a file of JSON holds; anything else is refused."""
    try:
        found = json.loads(read_plain(path, error, most=most).decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as cause:
        raise error(f"{printable(path)} is no JSON: {cause}; get it anew, or remove it") from cause
    if not isinstance(found, dict):
        raise error(
            f"{printable(path)} holds no table (JSON object), but a {type(found).__name__}; get it anew, or remove it"
        )
    return found
