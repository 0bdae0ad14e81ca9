"""A comparison as a table and as a page with plots of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rbprune.files import write_atomic
from rbprune.report.html import environment
from rbprune.report.line import Line
from rbprune.report.scatter import scatter
from rbprune.report.sheet import Sheet
from rbprune.report.standing import standing

COLUMNS = ("method", "channels left, first seed", "CR", "MACs", "error %", "cost", "seconds")


def sheet(lines: Sequence[Line], title: str) -> Sheet:
    """The table in the paper's format."""
    return Sheet(title, COLUMNS, tuple(line.cells for line in lines), names=2)


def write_page(
    folder: Path, lines: Sequence[Line], title: str, base: float | None, notes: Sequence[str], command: str
) -> Path:
    """``folder/compare.html``: one file that needs nothing else."""
    page = (
        environment()
        .get_template("compare.html.j2")
        .render(
            title=title,
            columns=COLUMNS,
            lines=lines,
            standing=standing(lines, base),
            plot=scatter(lines, base),
            notes=notes,
            command=command,
        )
    )
    write_atomic(folder / "compare.html", page)
    return folder / "compare.html"
