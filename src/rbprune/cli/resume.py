"""``rbprune resume``."""

from __future__ import annotations

from pathlib import Path

from rbprune.cli.options import Json, command, show_summary
from rbprune.runs import session


def resume(folder: Path, *, json: Json = False) -> None:
    """Go on with an interrupted run from its last checkpoint; the end is the same as without the interruption.

    Parameters
    ----------
    folder
        The run folder.
    """
    show_summary(session.resume(folder, command=command()), folder, json)
