"""A list of SHA-256 sums, in the format of ``sha256sum -c``, which guards itself by its first line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

_HEAD = "# sha256 of the lines below: "
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def sha256(content: bytes) -> str:
    """The sum of a content."""
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: Path) -> str:
    """The sum of a file, which need not fit into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums_text(sums: Mapping[str, str]) -> str:
    """The list of these sums by file name, as ``read_sums`` reads it and ``sha256sum -c`` checks it."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    return f"{_HEAD}{sha256(lines.encode())}\n{lines}"


def read_sums(content: bytes) -> dict[str, str]:
    """The sums in a list that ``sums_text`` made; a ValueError where one bit of it is another.

    >>> read_sums(sums_text({"a": sha256(b"x")}).encode()) == {"a": sha256(b"x")}
    True
    """
    head, _, lines = content.partition(b"\n")
    if head.decode("ascii", "replace") != _HEAD + sha256(lines):
        raise ValueError("its first line is not the sum of the others")
    found = [_LINE.fullmatch(line) for line in lines.decode().splitlines()]
    return {match[2]: match[1] for match in found if match is not None}
