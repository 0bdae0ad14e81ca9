"""Files that are either whole or not there, and what is said where one cannot be written."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rbprune.errors import WriteError
from rbprune.utils.live_processes import is_of_dead_process, mark

_TEMPORARY = re.compile(r"\..+\.([A-Za-z0-9_-]*?[0-9]+)\.tmp")
_REMEDIES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within your quota",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.ENOENT: "its folder is gone, put it back",
    errno.EACCES: "make its folder writable",
    errno.EROFS: "make its file system writable",
}


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write under a temporary name; without an error it is forced to disk and gets its name.

    What dead processes have left of the same file is removed.
    """
    temporary = path.with_name(f".{path.name}.{mark()}.tmp")
    with write_errors(path, temporary):
        for old in temporaries(path.parent, f".{path.name}."):
            if is_dead_temporary(old):
                old.unlink(missing_ok=True)
        try:
            temporary.unlink(missing_ok=True)  # a number may come again, and a link must not be written through
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> Path:
    """Write under a temporary name, force it to disk, then give it its name."""
    with atomic(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def write_errors(path: Path, *also: Path) -> Iterator[None]:
    """Inside, what the system says against writing ``path`` is a WriteError that names it and the remedy.

    An error that names another file is none of these, unless it is ``path`` itself, below it or one of ``also``.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        named = error.filename
        own = named is None or any(Path(os.fsdecode(named)).is_relative_to(each) for each in (path, *also))
        if isinstance(named, int) or not own:
            raise
        remedy = _REMEDIES.get(error.errno or 0, "see to it")
        found = WriteError(f"cannot write {path}: {error.strerror or error}; {remedy}")
        found.errno, found.strerror = error.errno, error.strerror
        raise found from error


def sync_folder(folder: Path) -> None:
    """Force to disk which files a folder has; a system that cannot do that for folders is let be."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def temporaries(folder: Path, beginning: str = ".") -> list[Path]:
    """The files of a folder that are, or were, being written by ``atomic``."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name.startswith(beginning) and _TEMPORARY.fullmatch(path.name)]


def is_dead_temporary(path: Path) -> bool:
    """Whether a temporary file is of a process that has ended."""
    found = _TEMPORARY.fullmatch(path.name)
    return found is not None and is_of_dead_process(found[1])
