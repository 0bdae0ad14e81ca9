"""Several runs on one page: what each came to, error against MACs, and the widths of their networks side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rbprune.graph.cost import MACS
from rbprune.logging.event_fields import as_mapping, as_text
from rbprune.report.comparison import ComparisonRow, error_over_cost
from rbprune.report.html import environment, error_of, latency_of, verdict_of
from rbprune.report.run_record import RunRecord, SiteRecord
from rbprune.report.svg import both_widths
from rbprune.utils.files import write_atomic
from rbprune.utils.numbers import as_number


@dataclass(frozen=True)
class RunBeside:
    """One of several runs: a name that tells it from the others, what its log says, and where its own page is."""

    name: str
    record: RunRecord
    link: str | None = None
    """The address of its own page, seen from the page of all."""

    @property
    def model(self) -> str:
        """What the run calls its network."""
        return as_text(self.record.start.get("model") or self.record.summary.get("model")) or "unknown network"

    def to_dict(self) -> dict[str, Any]:
        """What the run came to, as plain values; what is unknown is None."""
        record, error = self.record, error_of(self.record)
        verdict = verdict_of(record)
        spent = [as_number(value) for value in as_mapping(record.summary.get("dense_epochs")).values()]
        return {
            "name": self.name,
            "model": self.model,
            "method": as_text(record.start.get("method") or record.summary.get("method")) or None,
            "finished": record.finished,
            "verdict": None if verdict is None else {key: verdict[key] for key in ("level", "text")},
            "metric": record.metric,
            **{f"{name}_ratio": cost.ratio for name, cost in record.costs.items()},
            "measured_latency_ratio": (latency_of(record) or {}).get("ratio"),
            "error_before": error["before"],
            "error_after": error["after"],
            "val_error_before": error["val_before"],
            "val_error_after": error["val_after"],
            "channels": {s.name: [s.before, s.now] for s in record.sites if s.is_open and not s.is_branch},
            "dense_epochs": sum(value or 0.0 for value in spent) if spent else None,
            "seconds": record.seconds,
        }


@dataclass(frozen=True)
class WidthTable:
    """The widths of runs whose networks have the same sites: a row for each site that one of them judges."""

    model: str
    runs: list[str]
    rows: list[tuple[str, float | None, list[SiteRecord | None]]]
    """The name of a site, its channels before, and what each run made of it."""
    widest: float


def width_tables(runs: Sequence[RunBeside]) -> list[WidthTable]:
    """A table for each network: runs belong together where their sites had the same widths before."""
    groups: dict[Any, list[RunBeside]] = {}
    for run in runs:
        sites = {site.name: site.before for site in run.record.sites if not site.is_branch}
        if sites:
            groups.setdefault((run.model, tuple(sorted(sites.items()))), []).append(run)
    tables = []
    for (model, _), members in groups.items():
        found = [{site.name: site for site in run.record.sites if not site.is_branch} for run in members]
        judged = [name for name in found[0] if any(name in each and each[name].is_open for each in found)]
        rows = [(name, found[0][name].before, [each.get(name) for each in found]) for name in judged]
        widest = max((before or 0.0 for _, before, _ in rows), default=0.0)
        if rows:
            tables.append(WidthTable(model, [run.name for run in members], rows, widest))
    return tables


def error_against_macs(runs: Sequence[RunBeside]) -> Markup:
    """A point for each finished run whose error is known; a dashed line where all had the same dense network.

    Errors and losses have no common axis: where there are both, those of the first run's kind are drawn.
    """
    done = [run for run in runs if error_of(run.record)["after"] is not None]
    done = [run for run in done if run.record.costs.get(MACS.name) and run.record.costs[MACS.name].ratio is not None]
    alike = [run for run in done if run.record.metric == done[0].record.metric]
    rows = [
        ComparisonRow((run.name,), run.record.costs[MACS.name].ratio, (error_of(run.record)["after"],)) for run in alike
    ]
    before = {error_of(run.record)["before"] for run in alike}
    dense = before.pop() if len(before) == 1 else None
    metric = alike[0].record.metric if alike else "error"
    return both_widths(partial(error_over_cost, rows, dense, MACS.label, metric=metric))


def write_side_by_side(page: Path, runs: Sequence[RunBeside], command: str) -> Path:
    """Write the page of several runs, one file that needs nothing else; links lead to the pages of the runs."""
    costs: Mapping[str, str] = {name: cost.heading for run in runs for name, cost in run.record.costs.items()}
    html = (
        environment()
        .get_template("side_by_side.html.j2")
        .render(
            runs=[
                {
                    "run": run,
                    "verdict": verdict_of(run.record),
                    "latency": latency_of(run.record),
                    "error": error_of(run.record),
                    "told": run.to_dict(),
                }
                for run in runs
            ],
            costs=costs,
            timed=any(latency_of(run.record) for run in runs),
            widths=width_tables(runs),
            chart=error_against_macs(runs),
            command=command,
        )
    )
    return write_atomic(page, html.encode("utf-8", errors="replace"))
