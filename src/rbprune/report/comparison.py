"""A comparison of methods: its rows, its table, its two charts and the page that shows them all."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup

from rbprune.graph.cost import COSTS, Cost
from rbprune.report.html import environment
from rbprune.report.plain_table import PlainTable
from rbprune.report.svg import (
    WIDE,
    Frame,
    Scale,
    both_widths,
    clipped,
    dot,
    height_for_labels,
    padded_range,
    room_for,
    spread_labels,
    text,
)
from rbprune.utils.files import write_atomic
from rbprune.utils.numbers import score

PAIRED = "to the first"
"""The column of differences between methods on the same seeds."""
ROW = 22
"""The height of a row of the ranking chart, in pixels."""


@dataclass(frozen=True)
class ComparisonRow:
    """One method: its cells in the table, and its place in the charts; without a ratio if it failed."""

    cells: tuple[str, ...]
    """One for each of ``comparison_columns()``; empty where nothing is known."""
    ratio: float | None = None
    """How many times less the pruned network costs, in the cost at which the methods meet."""
    errors: tuple[float, ...] = ()
    """Test errors in per cent, one per seed."""

    @property
    def name(self) -> str:
        """The name of the method, which is its first cell."""
        return self.cells[0]

    @property
    def error(self) -> float:
        """The mean of the errors over seeds."""
        return statistics.mean(self.errors)

    @property
    def spread(self) -> float:
        """One standard deviation of the errors over seeds; 0 for a single seed."""
        return statistics.stdev(self.errors) if len(self.errors) > 1 else 0.0


def comparison_columns() -> tuple[str, ...]:
    """The columns of the table: each cost of ``COSTS`` has one, for how many times less the pruned network has of it.

    >>> comparison_columns()[2:6]
    ('MACs', 'parameters', 'microseconds', 'error %')
    """
    costs = (cost.label for cost in COSTS.values())
    return ("method", "channels left, first seed", *costs, "error %", PAIRED, "cost", "seconds")


def comparison_table(rows: Sequence[ComparisonRow], title: str) -> PlainTable:
    """The table of all methods.

    Two kinds of columns are left out where all their cells are empty: a cost that no run knows, and the differences to
    the first where no method shares seeds with it.
    """
    columns = comparison_columns()
    optional = {PAIRED, *(cost.label for cost in COSTS.values())}
    shown = [i for i, name in enumerate(columns) if name not in optional or any(row.cells[i] for row in rows)]
    heads, *cells = (tuple(line[i] for i in shown) for line in (columns, *(row.cells for row in rows)))
    note = "To the first: points of error above the first method's on the same seeds, +- the 95 % interval."
    return PlainTable(title, heads, tuple(cells), names=2, note=note if PAIRED in heads else "")


def write_page(
    folder: Path,
    rows: Sequence[ComparisonRow],
    title: str,
    *,
    cost: Cost,
    dense: float | None,
    notes: Sequence[str],
    command: str,
) -> Path:
    """Write ``folder/compare.html``, one file that needs nothing else.

    The ratios of the rows are of ``cost``; ``dense`` is the dense network's error.
    """
    table = comparison_table(rows, title)
    page = (
        environment()
        .get_template("compare.html.j2")
        .render(
            table=table,
            reduced=[cost.label for cost in COSTS.values() if cost.label in table.columns],
            ranking=both_widths(partial(ranking_chart, rows, dense)),
            cost=cost,
            error_over_cost=both_widths(partial(error_over_cost, rows, dense, cost.label)),
            dense=dense,
            several=any(len(row.errors) > 1 for row in rows),
            notes=notes,
            command=command,
        )
    )
    write_atomic(folder / "compare.html", page)
    return folder / "compare.html"


def highest_shown(errors: list[float], dense: float | None) -> float:
    """The error above which a method would squeeze the others together in a chart.

    With the median m of the errors and the lowest error l, that of the dense network included, it is m + 4 (m - l),
    and at least 1.05 m.

    >>> highest_shown([8.0, 9.0, 10.0, 60.0], None)
    15.5
    """
    low, middle = min([*errors, *([] if dense is None else [dense])]), statistics.median(errors)
    return max(middle + 4 * (middle - low), middle * 1.05)


def error_over_cost(
    rows: Sequence[ComparisonRow], dense: float | None, label: str, width: int = WIDE, metric: str = "error"
) -> Markup:
    """Error over how many times a cost fell: one point per method, with a bar of one standard deviation to either side.

    ``label`` is that of the cost in which the ratios of the rows are; ``metric`` says what the errors are, "error" in
    per cent or "loss".

    A method that failed by far lies on the upper edge, with its error beside its name, so that the others stay apart.
    """
    points = [(row.ratio, row.error, row) for row in rows if row.ratio is not None]
    if not points:
        return Markup("")
    most = highest_shown([error for _, error, _ in points], dense)
    names = [f"{row.name} ({score(error, metric)})" if error > most else row.name for _, error, row in points]
    names += [] if dense is None else [f"dense {score(dense, metric)}"]
    frame = Frame(width, max(380, height_for_labels(len(names), width)), right=room_for(names, width))
    x, y = _scatter_scales(frame, points, dense)
    parts = frame.axes(x, y, f"times fewer {label}", show_x=lambda ratio: f"{ratio:g}x", most_x=max(3, width // 90))
    parts.append(text("label", 0, frame.top - 6, "test error in per cent" if metric == "error" else metric))
    spots = [y(min(error, y.high)) for _, error, _ in points]
    levels = spread_labels(spots + ([] if dense is None else [y(dense)]), frame.ground, frame.label_spacing)
    edge = frame.right_edge
    if dense is not None:
        parts += [frame.reference(y(dense)), text("refer", edge + 6, levels[-1] + 4, names[-1])]
    for (ratio, error, row), name, spot, level in zip(points, names, spots, levels, strict=False):
        if row.spread and error <= most:
            parts.append(f'<path class="line" d="M{x(ratio)} {y(error - row.spread)}V{y(error + row.spread)}"/>')
        parts.append(f'<path class="grid" d="M{x(ratio) + 5} {spot}L{edge + 2} {level}"/>')
        parts.append(dot(x(ratio), spot, f"{row.name}: {score(error, metric)}", radius=4))
        parts.append(text("tick", edge + 6, level + 4, clipped(name, frame.right, width)))
    return frame.drawing(f"error against {label}", parts)


def _scatter_scales(
    frame: Frame, points: Sequence[tuple[float, float, ComparisonRow]], dense: float | None
) -> tuple[Scale, Scale]:
    """The scales of ratios and errors; ratios that differ by a few per cent shall look alike."""
    most = highest_shown([error for _, error, _ in points], dense)
    shown = [e for _, error, row in points if error <= most for e in (error - row.spread, error + row.spread)]
    middle = statistics.median(ratio for ratio, _, _ in points)
    across = padded_range([*(ratio for ratio, _, _ in points), 0.9 * middle, 1.1 * middle])
    return frame.x_scale(*across), frame.y_scale(*padded_range(shown + ([] if dense is None else [dense])))


def ranking_chart(rows: Sequence[ComparisonRow], dense: float | None, width: int = WIDE) -> Markup:
    """The methods from the lowest mean error to the highest: a dot per seed, a stroke at their mean, ratios beside it.

    Methods whose mean would squeeze the others together lie on the right edge, marked by >. A single method has
    no rank, so nothing is drawn for it.
    """
    ranked = sorted((row for row in rows if row.ratio is not None), key=lambda row: row.error)
    if len(ranked) < 2:
        return Markup("")
    most = highest_shown([row.error for row in ranked], dense)
    shown = [error for row in ranked if row.error <= most for error in row.errors]
    names, results = [row.name for row in ranked], [f"{row.error:.2f} % at {row.ratio:.2f}x" for row in ranked]
    left, right = room_for(names, width), room_for([f"> {told}" for told in results], width)
    frame = Frame(width, ROW * len(ranked) + 46, left=left, right=right, top=6)
    x = frame.x_scale(*padded_range(shown + ([] if dense is None else [dense])))
    parts = frame.axes(x, None, "test error in per cent", most_x=max(3, width // 120))
    if dense is not None:
        parts.append(f'<path class="reference" d="M{x(dense)} {frame.top}V{frame.ground}"/>')
    for index, (row, told) in enumerate(zip(ranked, results, strict=True)):
        level = frame.top + ROW * (index + 0.5)
        parts.append(text("refer", x.begin - 12, level + 4, clipped(row.name, left, width), anchor="end"))
        parts += [dot(x(min(error, x.high)), level, f"{error:.2f} %", radius=3.5) for error in row.errors]
        parts.append(f'<path class="mean" d="M{x(min(row.error, x.high))} {level - 8}v16"/>')
        parts.append(text("tick", x.end + 10, level + 4, f"> {told}" if max(row.errors) > x.high else told))
    return frame.drawing("methods by error", parts)
