"""``rbprune report``."""

from __future__ import annotations

import shlex
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Json, command
from rbprune.report.html import write_report
from rbprune.report.plain_table import PlainTable
from rbprune.report.side_by_side import RunBeside
from rbprune.runs.folder import RunFolder
from rbprune.runs.report_page import read_beside, rewrite_report, write_page_of_runs
from rbprune.utils.numbers import DASH, ratio, score

SEVERAL = Path("runs.html")


def report(
    folders: Annotated[list[Path], Parameter(help="run folders, finished or not")],
    *,
    out: Annotated[
        Path | None,
        Parameter(help=f"the file of the page; by default DIR/report.html of one run, {SEVERAL} of several"),
    ] = None,
    json: Json = False,
) -> None:
    """Write the page of a run anew, or one page that shows several runs side by side.

    Several runs: a table of outcomes, error against MACs, the widths of their networks, and links to their own pages.
    """
    page = out or (SEVERAL if len(folders) > 1 else RunFolder(folders[0]).report_file)
    runs = read_beside(folders, page)
    if len(runs) > 1:
        write_page_of_runs(page, runs, shlex.join(command()))
    elif out is None:
        rewrite_report(RunFolder(folders[0]))
    else:
        run = RunFolder(folders[0])
        write_report(out, events=run.events_file, settings=run.settings_file)
    if json:
        print(dumps({"page": str(page), "runs": [run.to_dict() for run in runs]}, indent=2))
        return
    console = Console()
    if len(runs) > 1:
        console.print(outcome_table(runs).rich_table())
    console.print(f"page: {page}", markup=False, highlight=False, soft_wrap=True)


def outcome_table(runs: list[RunBeside]) -> PlainTable:
    """What each of several runs came to, for the terminal."""
    rows = []
    for told in (run.to_dict() for run in runs):
        level = told["verdict"]["level"] if told["verdict"] else "" if told["finished"] else "unfinished"
        error = score(told["error_after"], told["metric"])
        if told["error_before"] is not None:
            error = f"{score(told['error_before'], told['metric'])} -> {error}"
        ratios = (ratio(told.get(key)) for key in ("macs_ratio", "measured_latency_ratio"))
        rows.append((told["name"], told["method"] or DASH, level or DASH, *ratios, error))
    columns = ("run", "method", "verdict", "MACs", "latency", "error")
    return PlainTable(f"{len(runs)} runs", columns, tuple(rows), names=3)
