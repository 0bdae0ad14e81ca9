"""The paper's tables with our rows beside its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rbprune import models
from rbprune.graph import trace
from rbprune.measure.count import Count, count_run
from rbprune.report.plain_table import PlainTable
from rbprune.reproduce.paper import PaperChannels, PaperResult

Summary = Mapping[str, Any]


def comparison(title: str, printed: Sequence[PaperResult], ours: Mapping[str, Summary]) -> PlainTable:
    """Each row of the paper, and below it what we measured for the same method; ``ours`` by the paper's names.

    A run called ``METHOD, something`` is one more row of that method; methods that are not the paper's come last.
    """
    wide, top5 = any(row.channels for row in printed), any(row.top5 is not None for row in printed)
    head = ["method", "by"] + ["channels left"] * wide + ["CR"] * wide + ["MACs", "error %"] + ["top-5 %"] * top5
    rows, told = [], set()
    for row in printed:
        rows.append(_cells(row, "paper", wide, top5))
        if row.method == "Baseline" and ours:
            rows.append(_cells(_dense(next(iter(ours.values()))), "here", wide, top5))
        for label in (label for label in ours if label.partition(",")[0] == row.method):
            rows.append(_cells(measured(label, ours[label]), "here", wide, top5))
            told.add(label)
    rows += [_cells(measured(label, ours[label]), "here", wide, top5) for label in ours if label not in told]
    return PlainTable(title, (*head, "cost"), _with_cost(rows, ours), names=3 if wide else 2)


def measured(method: str, summary: Summary) -> PaperResult:
    """Turn the summary of a finished run into a row of the paper's kind."""
    channels = "-".join(str(after) for _, after in summary["channels"].values())
    errors = summary["error_after"], summary.get("top5_after")
    return PaperResult(method, summary["macs_ratio"], *errors, summary["params_ratio"], channels)


def _dense(summary: Summary) -> PaperResult:
    channels = "-".join(str(before) for before, _ in summary["channels"].values())
    return PaperResult("Baseline", 1.0, summary["error_before"], summary.get("top5_before"), 1.0, channels)


def _cells(row: PaperResult, by: str, wide: bool, top5: bool) -> tuple[str, ...]:
    digits = 1 if by == "paper" else 2
    cells = [row.method, by]
    if wide:
        cells += [row.channels, _number(row.params, 1, "x")]
    cells += [_number(row.macs, digits, "x"), _number(row.error, digits)]
    return (*cells, _number(row.top5, digits)) if top5 else tuple(cells)


def _with_cost(rows: Sequence[tuple[str, ...]], ours: Mapping[str, Summary]) -> tuple[tuple[str, ...], ...]:
    """What each of our runs spent on pruning and fine-tuning, in dense epochs."""
    found = []
    for cells in rows:
        spent = ours[cells[0]]["dense_epochs"] if cells[1] == "here" and cells[0] in ours else None
        found.append((*cells, "" if spent is None else _number(spent["prune"] + spent["finetune"], 1)))
    return tuple(found)


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def channels_by_layer(printed: Sequence[PaperChannels], summary: Summary) -> PlainTable:
    """Channels left in each layer, MACs of convolutions as they accumulate, beside the paper's."""
    found = _counted(summary).accumulated
    rows = []
    for left, step in zip(printed, found, strict=False):
        here = _left(step.kept, step.channels), _number(step.conv_macs_ratio, 2, "x")
        rows.append((f"{left.name} ({step.site})", *_pair(left), *here))
    columns = ("layer", "paper: left", "accumulated", "here: left", "accumulated")
    note = "Accumulated: reduction of the convolutions' MACs once this layer and all before it are cut."
    return PlainTable("Channels left, layer by layer", columns, tuple(rows), note=note)


def channels_by_stage(label: str, printed: Sequence[PaperChannels], summary: Summary) -> PlainTable:
    """Channels left in each stage of a residual network; cells stay empty where the paper printed nothing."""
    rows = []
    for number, stage in enumerate(_counted(summary).stages):
        theirs = _pair(printed[number]) if number < len(printed) else ("", "")
        name = f"res{number + 2} ({stage.stage})"
        rows.append((name, *theirs, _left(stage.kept, stage.channels), _number(stage.macs_ratio, 2, "x")))
    columns = ("stage", "paper: left", "accumulated", "here: left", "accumulated")
    note = "Channels of the first two convolutions of each block. Accumulated: reduction of MACs up to here."
    return PlainTable(f"Channels left by {label}, stage by stage", columns, tuple(rows), note=note)


def _counted(summary: Summary) -> Count:
    name = str(summary["model"])
    model = models.build(name)
    return count_run(
        trace(model, models.example_input(name, model)), summary["channels"], summary.get("removed_blocks", ())
    )


def _pair(left: PaperChannels) -> tuple[str, str]:
    return _left(left.kept, left.channels), _number(left.macs, 1, "x")


def _left(kept: int, channels: int) -> str:
    return f"{kept}/{channels} ({100 * kept / channels:.0f} %)"
