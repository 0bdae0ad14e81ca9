"""Files that are either whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> Path:
    """Write under a temporary name, force it to disk, then give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
