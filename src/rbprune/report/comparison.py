"""A comparison as a table for people, as Markdown, and as a page with a plot of error against MACs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from rich import box
from rich.table import Table

from rbprune.files import write_atomic
from rbprune.report.axis import Scale, padded, ticks

TEMPLATES = Path(__file__).with_name("templates")
COLUMNS = ("method", "channels left", "CR", "MACs", "error %", "cost", "seconds")
LEFT, RIGHT, TOP, BOTTOM = 52, 120, 16, 40


@dataclass(frozen=True)
class Line:
    """One row: what stands in the table, and where its point lies in the plot."""

    cells: tuple[str, ...]
    macs: float | None = None
    error: float | None = None
    spread: float = 0.0


def markdown(lines: Sequence[Line], title: str) -> str:
    """The table in the paper's format.

    >>> print(markdown([Line(("rbp", "4-7", "20.1", "18.3", "0.90", "3.1", "60"))], "LeNet"))
    LeNet
    <BLANKLINE>
    | method | channels left | CR | MACs | error % | cost | seconds |
    |---|---|---|---|---|---|---|
    | rbp | 4-7 | 20.1 | 18.3 | 0.90 | 3.1 | 60 |
    <BLANKLINE>
    """
    rows = ["| " + " | ".join(line.cells) + " |" for line in lines]
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([title, "", *head, *rows, ""])


def table(lines: Sequence[Line], title: str) -> Table:
    """The same for the terminal."""
    found = Table(title=title, box=box.SIMPLE, title_justify="left")
    for number, name in enumerate(COLUMNS):
        found.add_column(name, justify="right" if number > 1 else "left", overflow="fold")
    for line in lines:
        found.add_row(*line.cells)
    return found


def scatter(lines: Sequence[Line], base: float | None, width: int = 720, height: int = 380) -> Markup:
    """Error over the reduction of MACs, one point per method, with bars of one standard deviation."""
    points = [(line.macs, line.error, line) for line in lines if line.macs is not None and line.error is not None]
    if not points:
        return Markup("")
    across = padded([macs for macs, _, _ in points])
    errors = [e for _, error, line in points for e in (error - line.spread, error + line.spread)]
    up = padded(errors + ([base] if base is not None else []))
    x, y = Scale(*across, LEFT, width - RIGHT), Scale(*up, height - BOTTOM, TOP)
    parts = [f'<path class="grid" d="M{LEFT} {y(v)}H{width - RIGHT}"/>' for v in ticks(*up)]
    parts += [f'<text class="tick" x="{LEFT - 8}" y="{y(v) + 4}" text-anchor="end">{v:g}</text>' for v in ticks(*up)]
    parts += [
        f'<text class="tick" x="{x(v)}" y="{height - BOTTOM + 17}" text-anchor="middle">{v:g}x</text>'
        for v in ticks(*across)
    ]
    parts.append(f'<path class="axis" d="M{LEFT} {height - BOTTOM}H{width - RIGHT}"/>')
    parts.append(
        f'<text class="label" x="{(LEFT + width - RIGHT) / 2}" y="{height - 6}" text-anchor="middle">'
        "MACs reduced; upwards the test error in per cent</text>"
    )
    if base is not None:
        parts.append(f'<path class="reference" d="M{LEFT} {y(base)}H{width - RIGHT}"/>')
        parts.append(f'<text class="refer" x="{width - RIGHT + 6}" y="{y(base) + 4}">dense {base:.2f} %</text>')
    taken: list[float] = [] if base is None else [y(base)]
    for macs, error, line in sorted(points, key=lambda point: point[1]):
        level = y(error)
        while any(abs(level - other) < 11 for other in taken):
            level += 11
        taken.append(level)
        name = escape(line.cells[0])
        if line.spread:
            parts.append(f'<path class="line" d="M{x(macs)} {y(error - line.spread)}V{y(error + line.spread)}"/>')
        parts.append(f'<circle cx="{x(macs)}" cy="{y(error)}" r="4"><title>{name}: {error:.2f} %</title></circle>')
        parts.append(f'<path class="grid" d="M{x(macs) + 5} {y(error)}L{width - RIGHT + 2} {level}"/>')
        parts.append(f'<text class="tick" x="{width - RIGHT + 6}" y="{level + 4}">{name}</text>')
    opening = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="error against MACs">'
    return Markup("".join([opening, *parts, "</svg>"]))


def write_page(
    folder: Path, lines: Sequence[Line], title: str, base: float | None, notes: Sequence[str], command: str
) -> Path:
    """``folder/compare.html``: one file that needs nothing else."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template("compare.html.j2").render(
        title=title, columns=COLUMNS, lines=lines, plot=scatter(lines, base), notes=notes, command=command
    )
    write_atomic(folder / "compare.html", page)
    return folder / "compare.html"
