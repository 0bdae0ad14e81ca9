"""What the terminal shows of a run: a line per stage and a table at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rbprune.graph.cost import COSTS
from rbprune.logging.cost_totals import cost_totals, quantity
from rbprune.logging.event_fields import as_list, as_mapping, as_pair, as_text
from rbprune.utils.numbers import as_number, change, decimal, duration, ratio, score, share

_PHASES = {"pretrain": "pretraining", "prune": "pruning", "finetune": "fine-tuning"}
MOST_SITES = 40
BAR = 20


def stage_line(event: Mapping[str, Any]) -> str:
    """One line on a finished stage; ``stages`` in the event, when there, is the total.

    >>> stage_line({"stage": 2, "stages": 13, "channels": {"features.7": [128, 97]}, "macs_ratio": 1.42})
    'stage 3/13  features.7  128 -> 97   MACs 1.42x'
    """
    parts = []
    index, total = as_number(event.get("stage")), as_number(event.get("stages"))
    if index is not None:
        parts.append(f"stage {index + 1:.0f}" + (f"/{total:.0f}" if total is not None else ""))
    else:
        parts.append("stage")
    channels = {str(name): as_pair(value) for name, value in as_mapping(event.get("channels")).items()}
    names = [str(name) for name in as_list(event.get("sites"))] or list(channels)
    if names:
        parts.append(names[0] if len(names) == 1 else f"{len(names)} sites")
    if channels:
        before, _, after = _arrow(channels, "->").rpartition(" ")
        parts.append(f"{before} {after:<{len(before) - 3}}")
    parts += removed_branches(name for name, (_, after) in channels.items() if after == 0)
    for name, cost in COSTS.items():
        if as_number(event.get(f"{name}_ratio")) is not None:
            parts.append(f"{cost.label} {ratio(event[f'{name}_ratio'])}")
    parts += _of_cut(event)
    if as_number(event.get("val_error")) is not None:
        metric = event.get("metric") or "error"
        parts.append(f"val {metric} {score(event['val_error'], metric)}")
    if as_number(event.get("seconds")) is not None:
        parts.append(f"({duration(event['seconds'])})")
    return "  ".join(parts).rstrip()


def _of_cut(event: Mapping[str, Any]) -> list[str]:
    """What a cut did to the loss, foretold and measured, in nats per example; and what was taken back.

    >>> _of_cut({"forecast": 0.021, "measured": 0.026, "taken_back": 3})
    ['forecast +0.021, measured +0.026 nats per example', '3 channels taken back']
    """
    known = {name: as_number(event.get(name)) for name in ("forecast", "measured")}
    told = [f"{name} {change(value)}" for name, value in known.items() if value is not None]
    parts = [f"{', '.join(told)} nats per example"] if told else []
    back = as_number(event.get("taken_back"))
    return [*parts, f"{back:.0f} channel{'s' if back > 1 else ''} taken back"] if back else parts


def removed_branches(names: Iterable[str]) -> list[str]:
    """What is said of blocks whose branch is gone: nothing where there are none.

    >>> removed_branches(["layer2.1"]), removed_branches(["layer2.1", "layer3.2"]), removed_branches([])
    (['layer2.1: whole branch gone'], ['layer2.1, layer3.2: whole branches gone'], [])
    """
    gone = list(names)
    return [f"{', '.join(gone)}: whole branch{'es' if len(gone) > 1 else ''} gone"] if gone else []


def summary_table(summary: Mapping[str, Any], console: Console) -> None:
    """Print what the run reached: every cost and the error before and after, channels per site, and what was spent."""
    wide = console.encoding.lower().startswith("utf")
    console.print()
    console.print(_totals_table(summary))
    channels = {str(name): as_pair(value) for name, value in as_mapping(summary.get("channels")).items()}
    if channels:
        console.print(_sites_table(channels, as_mapping(summary.get("undecided")), wide))
        if len(channels) > MOST_SITES:
            console.print(Text(f"  and {len(channels) - MOST_SITES} more sites, all in report.html", style="dim"))
    for line in removed_branches(as_text(name) for name in as_list(summary.get("removed_blocks"))):
        console.print(Text(f"  {line}"))
    console.print(Text(f"  {cost_line(summary)}"))
    verdict = as_mapping(summary.get("verdict"))
    if verdict:
        colour = {"good": "green", "bad": "bold red"}.get(as_text(verdict.get("level")), "yellow")
        console.print(Text(f"  {as_text(verdict.get('text'))}", style=colour))


def _totals_table(summary: Mapping[str, Any]) -> Table:
    heading = [str(summary["method"])] if summary.get("method") else []
    heading += [f"seed {summary['seed']}"] if summary.get("seed") is not None else []
    table = Table(box=box.SIMPLE_HEAD, title=Text("  ".join(heading), style="bold") if heading else None)
    table.title_justify = "left"
    table.add_column("", style="bold", no_wrap=True)
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", style="bold green", no_wrap=True)
    for total in cost_totals(summary).values():
        table.add_row(total.label, quantity(total.before), quantity(total.after), ratio(total.ratio))
    before, after = as_number(summary.get("error_before")), as_number(summary.get("error_after"))
    metric = str(summary.get("metric") or "error")
    change = ""
    if before is not None and after is not None:
        change = f"{after - before:+.2f} points" if metric == "error" else f"{after - before:+.4f}"
    worse = before is not None and after is not None and after > before
    row = (score(before, metric), score(after, metric))
    table.add_row(metric, *row, Text(change, style="yellow" if worse else "green"))
    timed = as_mapping(summary.get("measured_latency"))
    if timed:
        cells = (f"{decimal(timed.get(key))} ms" for key in ("dense_ms", "pruned_ms"))
        table.add_row(f"latency, batch {as_text(timed.get('batch'))}", *cells, ratio(timed.get("ratio")))
    if as_number(summary.get("top5_after")) is not None:
        table.add_row(
            "top-5 error", score(summary.get("top5_before"), metric), score(summary["top5_after"], metric), ""
        )
    if as_number(summary.get("val_error_after")) is not None:
        before = as_number(summary.get("val_error_before"))
        shown = "" if before is None else score(before, metric)
        table.add_row(f"validation {metric}", shown, score(summary["val_error_after"], metric), "")
    return table


def _sites_table(
    channels: Mapping[str, tuple[float | None, float | None]], undecided: Mapping[Any, Any], wide: bool
) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    many = "sites" if len(channels) != 1 else "site"
    table.add_column(f"{len(channels)} {many}", overflow="ellipsis" if wide else "crop", no_wrap=True, ratio=1)
    arrow = "→" if wide else "->"
    table.add_column(Text(f"channels {_arrow(channels, arrow)}"), justify="right", no_wrap=True)
    table.add_column("kept", width=BAR, no_wrap=True)
    open_sites = any((as_number(value) or 0) > 0 for value in undecided.values())
    if open_sites:
        table.add_column("undecided", justify="right", no_wrap=True)
    for name, (before, after) in list(channels.items())[:MOST_SITES]:
        row: list[Text] = [Text(name), Text(_arrow({name: (before, after)}, arrow)), _bar(before, after, wide)]
        if open_sites:
            row.append(Text(share(undecided.get(name)) if as_number(undecided.get(name)) else ""))
        table.add_row(*row)
    return table


def _bar(before: float | None, after: float | None, wide: bool) -> Text:
    if not before or after is None:
        return Text("")
    full = min(BAR, max(1 if after else 0, round(BAR * after / before)))
    done, left = ("━", "━") if wide else ("#", ".")
    return Text.assemble((done * full, "green"), (left * (BAR - full), "bright_black"))


def _arrow(channels: Mapping[str, tuple[float | None, float | None]], arrow: str) -> str:
    before = sum(value[0] or 0 for value in channels.values())
    after = sum(value[1] or 0 for value in channels.values())
    return f"{before:.0f} {arrow} {after:.0f}"


def cost_line(summary: Mapping[str, Any]) -> str:
    """One line on what a run took: dense epochs, in all and by phase, and time; and how much smaller the network is
    than the original one, where it had been cut before.

    >>> cost_line({"dense_epochs": {"pretrain": 0.0, "prune": 1.5, "finetune": 5.0}, "seconds": 75})
    'cost: 6.5 dense epochs (pruning 1.5 + fine-tuning 5), 1 min 15 s'
    """
    phases = {_PHASES.get(str(k), str(k)): as_number(v) for k, v in as_mapping(summary.get("dense_epochs")).items()}
    known = {name: value for name, value in phases.items() if value}
    split = f" ({' + '.join(f'{name} {decimal(value)}' for name, value in known.items())})" if known else ""
    parts = [f"{decimal(sum(known.values()))} dense epochs{split}"] if phases else []
    if as_number(summary.get("seconds")) is not None:
        parts.append(duration(summary["seconds"]))
    totals = {cost.label: summary.get(f"{name}_ratio_total") for name, cost in COSTS.items()}
    smaller = [f"{ratio(total)} fewer {label}" for label, total in totals.items() if as_number(total) is not None]
    in_all = f"; with the earlier cuts {' and '.join(smaller)} than the original network" if smaller else ""
    return f"cost: {', '.join(parts) or 'unknown'}{in_all}"
