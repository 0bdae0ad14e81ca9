"""``rbprune resume``."""

from __future__ import annotations

from pathlib import Path

from rbprune.cli.options import FailAbove, Json, Trust, command, show_summary
from rbprune.runs.within_error import go_on


def resume(folder: Path, *, fail_above: FailAbove = None, trust: Trust = False, json: Json = False) -> None:
    """Go on with an interrupted run from its last checkpoint; the end is the same as without it.

    Parameters
    ----------
    folder
        The run folder.
    """
    show_summary(go_on(folder, command=command(), trust=trust), folder, json, fail_above)
