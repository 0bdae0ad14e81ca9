"""``rbprune resume``."""

from __future__ import annotations

from pathlib import Path

from rbprune.cli.options import FailAbove, Json, Trust, command, show_summary
from rbprune.runs.resume import resume as resume_run


def resume(folder: Path, *, fail_above: FailAbove = None, trust: Trust = False, json: Json = False) -> None:
    """Go on with an interrupted run from its last checkpoint; the end is the same as without the interruption.

    Parameters
    ----------
    folder
        The run folder.
    """
    show_summary(resume_run(folder, command=command(), trust=trust), folder, json, fail_above)
