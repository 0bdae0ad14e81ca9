"""A place beside the final one, where files are written and checked before they get their names."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A temporary folder inside ``folder``, which is made if need be.

    Whatever is left in the temporary one afterwards goes; after an error so do the folders that were made for it.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".export-", dir=folder))
    try:
        yield temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for path in missing:
            with suppress(OSError):  # somebody else has put something there
                path.rmdir()
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def publish(file: Path, final: Path) -> None:
    """Force a finished file to disk and give it its final name, in one step."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
    os.replace(file, final)
