"""The pages of runs that are there already: that of one run written anew, and one page for several."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from rbprune.errors import CheckpointError, ConfigError
from rbprune.logging.events import scan_events
from rbprune.report.html import write_report
from rbprune.report.run_record import gather_run
from rbprune.report.side_by_side import RunBeside, write_side_by_side
from rbprune.runs.folder import RunFolder
from rbprune.utils.checksums import sha256_file, sums_text
from rbprune.utils.files import write_atomic
from rbprune.utils.names import distinct_names

OURS = b'content="rbprune report"'
"""What tells a page of several runs from a file of somebody else."""


def rewrite_report(run: RunFolder, *, refresh: int | None = None) -> Path:
    """Write the page of a run anew from its events, whatever has become of the run, and return its path.

    The sums of a finished run are changed with it, so that the page is still one that the run is known by. With
    ``refresh`` a browser reads the page of an unfinished run anew after so many seconds.
    """
    _check(run)
    write_report(run.report_file, events=run.events_file, settings=run.settings_file, refresh=refresh)
    sums = run.read_sums() if run.is_finished else None
    if sums is not None:
        write_atomic(run.sums_file, sums_text({**sums, run.report_file.name: sha256_file(run.report_file)}))
    return run.report_file


def read_beside(folders: Sequence[Path], page: Path) -> list[RunBeside]:
    """What several runs say of themselves, each with a link to its own page as seen from ``page``."""
    found = []
    for name, path in distinct_names(folders).items():
        run = RunFolder(path)
        _check(run)
        scan = scan_events(run.events_file)
        if scan.damaged > scan.torn:
            lines = scan.damaged - scan.torn
            warnings.warn(f"{run.events_file} is damaged: {lines} lines are left out; copy it anew", stacklevel=2)
        link = quote(os.path.relpath(run.report_file, page.resolve().parent)) if run.report_file.is_file() else None
        found.append(RunBeside(name, gather_run(scan.events), link))
    return found


def write_page_of_runs(page: Path, runs: Sequence[RunBeside], command: str) -> Path:
    """Write the page of several runs; a file that is no such page is not written over."""
    if page.is_dir():
        raise ConfigError(f"--out is the file of the page, and {page} is a folder; give {page / 'runs.html'}")
    if page.is_file() and page.stat().st_size and OURS not in page.read_bytes():
        raise ConfigError(f"{page} is there already and is no page of runs; give another --out, or remove it")
    return write_side_by_side(page, runs, command)


def _check(run: RunFolder) -> None:
    """Refuse a folder that is no run, with those below it that are, and the log of a finished run that is damaged."""
    if not run.events_file.is_file():
        below = sorted(each.name for each in run.path.glob("*") if RunFolder(each).events_file.is_file())
        hint = f"there are runs below it: {', '.join(below[:5])}" if below else "give the --out of 'rbprune prune'"
        raise CheckpointError(f"{run} is no run folder (it has no {run.events_file.name}); {hint}")
    if run.is_finished:
        run.read(run.events_file)
