"""The command line as a user meets it: words in, an exit code and text out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rbprune.cli import main

Refused = Callable[[tuple[str, ...], str], None]
"""Checks that a command is refused with a message; see the fixture ``refused``."""


def run(*words: str) -> int:
    """The exit code of ``rbprune words``."""
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)
