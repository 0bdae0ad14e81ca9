"""A comparison as a table and as a page with plots of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rbprune.report.html import environment
from rbprune.report.line import Line
from rbprune.report.scatter import scatter
from rbprune.report.sheet import Sheet
from rbprune.report.standing import standing
from rbprune.utils.files import write_atomic

COLUMNS = ("method", "channels left, first seed", "CR", "MACs", "error %", "to the first", "cost", "seconds")
_PAIRED = COLUMNS.index("to the first")


def sheet(lines: Sequence[Line], title: str) -> Sheet:
    """The table in the paper's format; with one seed, nothing is said of differences."""
    rows = (COLUMNS, *(line.cells for line in lines))
    if not any(line.cells[_PAIRED] for line in lines):
        rows = tuple((*cells[:_PAIRED], *cells[_PAIRED + 1 :]) for cells in rows)
    note = "To the first: points of error above the first method's on the same seeds, +- the 95 % interval."
    return Sheet(title, rows[0], rows[1:], names=2, note=note if len(rows[0]) == len(COLUMNS) else "")


def write_page(
    folder: Path, lines: Sequence[Line], title: str, base: float | None, notes: Sequence[str], command: str
) -> Path:
    """``folder/compare.html``: one file that needs nothing else."""
    page = (
        environment()
        .get_template("compare.html.j2")
        .render(
            sheet=sheet(lines, title),
            standing=standing(lines, base),
            plot=scatter(lines, base),
            notes=notes,
            command=command,
        )
    )
    write_atomic(folder / "compare.html", page)
    return folder / "compare.html"
