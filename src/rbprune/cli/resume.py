"""``rbprune resume``."""

from __future__ import annotations

from pathlib import Path

from rbprune import session
from rbprune.cli.options import Json, command, show_summary


def resume(folder: Path, *, json: Json = False) -> None:
    """Go on with an interrupted run from its last checkpoint; the end is the same as without the interruption.

    Parameters
    ----------
    folder
        The run folder.
    """
    show_summary(session.resume(folder, command=command()), folder, json)
