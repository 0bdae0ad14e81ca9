"""``rbprune compare``."""

from __future__ import annotations

import shlex
import statistics
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Json, Set, command, show
from rbprune.errors import ConfigError, FailedRunsError, nearest
from rbprune.graph.cost import COSTS, MACS, find_cost
from rbprune.measure.statistics import interval, mean_and_spread
from rbprune.report.comparison import ComparisonRow, comparison_columns, comparison_table, write_page
from rbprune.runs.compare import PEERS, Comparison, ComparisonRequest, MethodResults
from rbprune.runs.compare import compare as run
from rbprune.utils.files import write_atomic
from rbprune.utils.processes import is_main

MOST_SITES = 16


def compare(
    recipe: str,
    *,
    methods: Annotated[str, Parameter(help="separated by commas; the first sets the cost for those that must be told")],
    out: Annotated[Path, Parameter(help="the folder of the comparison: new, or the one to go on with")],
    seeds: Annotated[int, Parameter(help="how many, from 0 on")] = 1,
    budget: Annotated[float | None, Parameter(help="dense epochs of pruning and fine-tuning together")] = None,
    cost: Annotated[str, Parameter(help=f"where the methods meet: {', '.join(COSTS)}")] = MACS.name,
    sweep: Annotated[str, Parameter(help="ratios of --cost for the methods that must be told, such as 1.5,2,3")] = "",
    match: Annotated[
        bool, Parameter(negative=(), help="cut every method that can be told to the first one's --cost")
    ] = False,
    peers: Annotated[str, Parameter(help="other tools to measure as well: torch-pruning")] = "",
    jobs: Annotated[int, Parameter(help="how many runs go on side by side, each with its part of the threads")] = 1,
    set: Set = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Prune one network by several methods under the same budget, and print the table.

    Interrupted or called again, it goes on where it was and repeats nothing; methods and seeds may be added later.

    Parameters
    ----------
    recipe
        A shipped recipe (such as lenet5-mnist) or a TOML file.
    """
    request = ComparisonRequest(
        recipe,
        (*_words(methods), *_peers(peers)),
        tuple(set),
        seeds,
        budget,
        tuple(_number(word) for word in _words(sweep)),
        match,
        cost,
    )
    words = command()
    found = run(request, out, console=Console(stderr=True), command=words, jobs=jobs)
    if not is_main():
        return
    title = f"{recipe}: {seeds} seed{'s' if seeds > 1 else ''}"
    lines, notes = (
        [line(row, found.rows[0], cost) for row in found.rows],
        [f"{r.label}: {r.failed}" for r in found.rows if r.failed],
    )
    result = comparison_table(lines, title)
    write_atomic(out / "compare.md", result.markdown())
    page = write_page(
        out, lines, title, cost=find_cost(cost), dense=_base(found), notes=notes, command=shlex.join(words)
    )
    if json:
        print(found.to_json())
    else:
        show([result], notes, page)
    if notes:
        raise FailedRunsError(f"{len(notes)} of {len(found.rows)} methods failed; their notes say why")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"--sweep takes numbers such as 1.5,2,3; {text!r} is none") from error


def _peers(text: str) -> tuple[str, ...]:
    unknown = [name for name in _words(text) if name not in PEERS]
    if unknown:
        raise ConfigError(f"unknown peer {unknown[0]!r}{nearest(unknown[0], PEERS)}; known: {', '.join(PEERS)}")
    return tuple(method for name in _words(text) for method in PEERS[name])


def _base(found: Comparison) -> float | None:
    return sum(found.base_error) / len(found.base_error) if found.base_error else None


def line(row: MethodResults, first: MethodResults, cost: str = MACS.name) -> ComparisonRow:
    """A method as the table and the charts show it, beside the first; its place in the charts is by ``cost``."""
    if not row.error:
        return ComparisonRow((row.label, "failed, see the notes", *[""] * (len(comparison_columns()) - 2)))
    behind = None if row is first else interval(row.behind(first))
    widths = [after for _, after in row.channels.values()]
    left = "-".join(map(str, widths)) if len(widths) <= MOST_SITES else f"{sum(widths)} in {len(widths)} layers"
    cells = (
        row.label,
        left,
        *(mean_and_spread(row.ratios[name]) if row.ratios.get(name) else "" for name in COSTS),
        mean_and_spread(row.error),
        "{:+.2f} +- {:.2f}".format(*behind) if behind else "",
        f"{statistics.mean(row.cost):.1f}",
        f"{statistics.mean(row.seconds):.0f}",
    )
    reached = row.ratios[cost]
    return ComparisonRow(cells, statistics.mean(reached) if reached else None, tuple(row.error))
