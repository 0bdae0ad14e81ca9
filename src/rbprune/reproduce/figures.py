"""The paper's figures, drawn from the events of runs: rates in each layer, channels left, recovery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rbprune.report.charts import column_chart, histogram, multi_line_chart
from rbprune.report.run_record import RunRecord, gather_run
from rbprune.report.svg import both_widths
from rbprune.runs.folder import RunFolder
from rbprune.utils.numbers import as_number


@dataclass(frozen=True)
class Figure:
    """A drawing, or ``parts`` (name, count, drawing) that stand side by side."""

    title: str
    note: str = ""
    drawing: str = ""
    parts: tuple[tuple[str, str, Markup], ...] = ()

    def told(self) -> dict[str, Any]:
        """What it shows, in words."""
        return {"title": self.title, "note": self.note, "parts": {name: count for name, count, _ in self.parts}}


def read_run(folder: Path) -> RunRecord:
    """Read what a run logged, finished or not."""
    return gather_run(RunFolder(folder).read_events())


def draw(name: str, runs: Mapping[str, RunRecord]) -> list[Figure]:
    """``rates``, ``channels`` or ``finetune`` of these runs."""
    if name == "rates":
        return [_rates(label, run) for label, run in runs.items()]
    if name == "channels":
        return [_channels(label, run) for label, run in runs.items()]
    return [_recovery(runs)]


def _rates(label: str, run: RunRecord) -> Figure:
    parts = []
    inside = total = 0
    kinds = [site.diagnostic for site in run.sites if site.values]
    for site in run.sites:
        if not site.values:
            continue
        if site.diagnostic == "rate":
            total += len(site.values)
            inside += sum(0.1 <= value <= 0.9 for value in site.values)
        kept = len(site.values) - (site.removed or 0)
        limits = (0.0, 1.0) if site.diagnostic == "rate" else None
        drawing = histogram(site.values, site.removed, site.name, limits)
        parts.append((site.name, f"{kept} of {len(site.values)}", drawing))
    other = f"{kinds[0]} instead of rates" if kinds else "no rates yet"
    share = f"{100 * inside / total:.1f} % of {total:,} channels lie between 0.1 and 0.9" if total else other
    return Figure(f"Rates, {label}", share, parts=tuple(parts))


def _channels(label: str, run: RunRecord) -> Figure:
    found = {
        site.name: (site.before, site.before if site.after is None else site.after)
        for site in run.sites
        if site.before is not None and site.values
    }
    left, had = (sum(pair[k] or 0 for pair in found.values()) for k in (1, 0))
    columns = {name: (a or 0.0, b or 0.0) for name, (a, b) in found.items()}
    drawing = both_widths(lambda width: column_chart(columns, title=label, width=width))
    return Figure(f"Channels left, {label}", f"{left:g} of {had:g}", drawing)


def recovery(run: RunRecord) -> list[tuple[float, float]]:
    """(epoch of fine-tuning, validation error); epoch 0 is just after the last cut."""
    cut = as_number(run.stages[-1].get("val_error")) if run.stages else None
    points = [] if cut is None else [(0.0, cut)]
    for event in run.epochs:
        epoch, error = as_number(event.get("epoch")), as_number(event.get("val_error"))
        if event.get("phase") == "finetune" and epoch is not None and error is not None:
            points.append((epoch, error))
    return points


def _recovery(runs: Mapping[str, RunRecord]) -> Figure:
    series = {label: recovery(run) for label, run in runs.items()}
    title, epochs = "Error while fine-tuning", "epochs of fine-tuning"
    drawing = both_widths(lambda width: multi_line_chart(series, title=title, x_label=epochs, width=width))
    return Figure(title, "validation error; epoch 0 is just after the last cut", drawing)
