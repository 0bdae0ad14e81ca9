"""The page of a frontier: error against cost for a dense network and the smaller ones that came of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rbprune.graph.cost import COSTS, find_cost
from rbprune.logging.cost_totals import quantity
from rbprune.report.charts import multi_line_chart
from rbprune.report.html import environment
from rbprune.report.plain_table import PlainTable
from rbprune.report.svg import both_widths
from rbprune.utils.files import write_atomic
from rbprune.utils.numbers import score

LINES = {"val_error": "validation", "error": "test"}
"""The fields of a point that are drawn, and what their lines are called."""


def frontier_table(found: Mapping[str, Any], title: str) -> PlainTable:
    """A row for each network: costs, ratios, errors, and what it took to come to it; ``found`` as in frontier.json."""
    costs = [cost for name, cost in COSTS.items() if name in found["points"][0]["costs"]]
    heads = ("network", *(cost.label for cost in costs), *(f"{cost.label} reduced" for cost in costs))
    heads = (*heads, "validation", "+-", "test", "dense epochs")
    rows = []
    for number, point in enumerate(found["points"]):
        doubt = point["standard_error"]
        rows.append(
            (
                point["path"] if number else "dense",
                *(quantity(point["costs"][cost.name]) for cost in costs),
                *(f"{point['ratios'][cost.name]:.2f}x" for cost in costs),
                score(point["val_error"], point["metric"]),
                f"{doubt:.2f}" if number and doubt is not None else "",
                score(point["error"], point["metric"]),
                f"{point['dense_epochs']:.1f}",
            )
        )
    note = (
        "+-: the standard error of the validation error above the dense network's, in points. Dense epochs: what "
        "all steps up to a network took."
    )
    return PlainTable(title, heads, tuple(rows), note=note)


def frontier_chart(found: Mapping[str, Any]) -> Markup:
    """Validation and test error over how many times the cost fell; nothing where no error is known."""
    cost = find_cost(found["cost"])
    lines = {
        label: [(p["ratios"][cost.name], p[name]) for p in found["points"] if p[name] is not None]
        for name, label in LINES.items()
    }
    metric = found["points"][0]["metric"]
    unit = " %" if metric == "error" else ""
    title, reduced = f"{metric} against {cost.label}", f"times fewer {cost.label}"
    return both_widths(lambda width: multi_line_chart(lines, title=title, x_label=reduced, unit=unit, width=width))


def write_frontier_page(page: Path, found: Mapping[str, Any], name: str, command: Sequence[str]) -> Path:
    """Write the page, one file that needs nothing else; ``name`` is that of the frontier."""
    html = (
        environment()
        .get_template("frontier.html.j2")
        .render(
            table=frontier_table(found, f"Frontier {name}"),
            cost=find_cost(found["cost"]),
            metric=found["points"][0]["metric"],
            chart=frontier_chart(found),
            stopped=found["stopped"],
            command=shlex.join(command),
        )
    )
    return write_atomic(page, html.encode("utf-8", errors="replace"))
