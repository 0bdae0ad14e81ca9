"""A disk that is full for one file, by the kernel's own word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rbprune.utils import files


@contextmanager
def full_disk(name: str) -> Iterator[None]:
    """Inside, what is written for a file of this name goes to the device that is always full."""

    def open_full(path: Path, mode: str) -> Any:
        file = path.open(mode)
        if path.name.startswith(f".{name}."):
            device = os.open("/dev/full", os.O_WRONLY)
            os.dup2(device, file.fileno())
            os.close(device)
        return file

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "open", open_full, raising=False)
        yield
