"""The page of a run: one HTML file that needs nothing else, and can be made anew from the events at any time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rbprune.errors import CheckpointError
from rbprune.logging.cost_totals import quantity
from rbprune.logging.event_fields import as_list, as_mapping, as_pair, as_text
from rbprune.logging.events import scan_events
from rbprune.report.charts import histogram
from rbprune.report.run_charts import phase_name, run_charts
from rbprune.report.run_record import RunRecord, gather_run
from rbprune.utils import numbers
from rbprune.utils.files import write_atomic
from rbprune.utils.numbers import as_number

TEMPLATES = Path(__file__).with_name("templates")


def write_report(page: Path, *, events: Path, settings: Path) -> Path:
    """Write the page of the run whose log is ``events``, and return its path.

    The run is named by the folder in which ``page`` lies. Where the log does not hold the settings, they are read
    from the file ``settings``, if there is one.
    """
    if not events.is_file():
        raise CheckpointError(f"no {events.name} in {str(events.parent)!r}; give the folder of a run")
    scan = scan_events(events)
    html = render(gather_run(scan.events), page.parent, settings, scan.damaged)
    return write_atomic(page, html.encode("utf-8", errors="replace"))


def render(run: RunRecord, folder: Path, settings: Path, damaged: int = 0) -> str:
    """The page of a run as HTML; ``damaged`` is how many lines of its events could not be read."""
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            damaged=damaged,
            spent=_spent(run),
            error=_error(run),
            verdict=_verdict(run),
            latency=_latency(run),
            stages=[_stage_row(stage) for stage in run.stages],
            cuts_are_measured=any(as_number(stage.get("measured")) is not None for stage in run.stages),
            charts=run_charts(run),
            histogram=histogram,
            total=_channels(run),
            widest=max((site.before or 0 for site in run.sites), default=0),
            most_macs=max((layer.macs[0] or 0 for layer in run.layers), default=0),
            most_params=max((layer.params[0] or 0 for layer in run.layers), default=0),
            names=min(24, max((len(site.name) + 7 * site.guarded for site in run.sites), default=0) + 1),
            toml=as_text(run.start.get("config_toml")) or _text_of(settings),
            command=shlex.join(map(as_text, as_list(run.start.get("command")))),
            resume=shlex.join(["rbprune", "resume", str(folder)]),
            load=f"import rbprune\n\nmodel = rbprune.load({str(folder)!r}, FreshModel())",
            versions=_versions(run),
            where=_where(run),
        )
    )


def _verdict(run: RunRecord) -> dict[str, str] | None:
    """What the run came to, in words, once it is complete."""
    found = as_mapping(run.summary.get("verdict"))
    return {key: as_text(found.get(key)) for key in ("level", "text")} if found else None


def _latency(run: RunRecord) -> dict[str, Any] | None:
    """The latency that was measured at the end of the run, where it was."""
    found = as_mapping(run.summary.get("measured_latency"))
    keys = ("batch", "dense_ms", "pruned_ms", "ratio")
    return {key: as_number(found.get(key)) for key in keys} | {"batch": as_text(found.get("batch"))} if found else None


@cache
def environment() -> Environment:
    """The templates of the pages, with escaping switched on and the filters that write numbers."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("count", "ratio", "percent", "score", "share", "change", "decimal", "duration"):
        found.filters[name] = getattr(numbers, name)
    found.filters["moment"] = moment
    found.filters["quantity"] = quantity
    return found


def moment(seconds: Any) -> str:
    """A unix time as people read it, empty where it is unknown."""
    try:
        return datetime.fromtimestamp(as_number(seconds) or 0, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _spent(run: RunRecord) -> dict[str, Any]:
    """What the run took in dense epochs, in total and, once it is finished, by phase."""
    spent = {str(k): as_number(v) for k, v in as_mapping(run.summary.get("dense_epochs")).items()}
    phases = {phase_name(name): value for name, value in spent.items() if value is not None}
    if phases:
        return {"total": sum(phases.values()), "phases": {name: value for name, value in phases.items() if value}}
    known = [as_number(event.get("dense_epochs")) for event in run.epochs]
    return {"total": max((value for value in known if value is not None), default=None), "phases": {}}


def _error(run: RunRecord) -> dict[str, Any]:
    """The error before and after pruning; until the test error is measured, the validation error stands for it."""
    before = as_number(run.summary.get("error_before"))
    before = as_number(run.start.get("error_before")) if before is None else before
    after = as_number(run.summary.get("error_after"))
    validation = as_number(run.summary.get("val_error_after"))
    if validation is None and not run.finished:
        seen = [as_number(event.get("val_error")) for event in run.timeline]
        validation = next((value for value in reversed(seen) if value is not None), None)
    return {
        "before": before,
        "after": validation if after is None else after,
        "measured": after is not None,
        "change": None if before is None or after is None else after - before,
        "validation": validation,
    }


def _stage_row(stage: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the table of stages."""
    channels = {str(name): as_pair(value) for name, value in as_mapping(stage.get("channels")).items()}
    names = [as_text(name) for name in as_list(stage.get("sites"))] or list(channels)
    undecided = [as_number(value) for value in as_mapping(stage.get("undecided")).values()]
    known = [value for value in undecided if value is not None]
    index = as_number(stage.get("stage"))
    return {
        "event": stage,
        "number": "" if index is None else f"{index + 1:.0f}",
        "names": names,
        "before": sum(value[0] or 0 for value in channels.values()) if channels else None,
        "after": sum(value[1] or 0 for value in channels.values()) if channels else None,
        "undecided": sum(known) / len(known) if known else None,
        "guarded": [as_text(name) for name in as_list(stage.get("guarded"))],
        "settled": {"True": "yes", "False": "no"}.get(as_text(stage.get("settled")), numbers.DASH),
    }


def _channels(run: RunRecord) -> tuple[float | None, float | None]:
    """The number of channels before and now, where a site whose stage has not come still has all of its own."""
    before = [site.before for site in run.sites if site.before is not None]
    after = [site.before if site.after is None else site.after for site in run.sites]
    begun = any(site.after is not None for site in run.sites)
    return sum(before) if before else None, sum(width or 0 for width in after) if begun else None


def _versions(run: RunRecord) -> dict[str, str]:
    versions = {"rbprune": as_text(run.start.get("version"))} if run.start.get("version") else {}
    return versions | {str(name): as_text(value) for name, value in as_mapping(run.summary.get("versions")).items()}


def _where(run: RunRecord) -> str:
    """How far an unfinished run came, in words."""
    last = next(iter(run.epochs[-1:]), None)
    if last is None:
        return ""
    phase = phase_name(last.get("phase"))
    stage = as_number(last.get("stage"))
    epoch = f"epoch {as_text(last.get('epoch'))}" + (f" of {as_text(last['epochs'])}" if last.get("epochs") else "")
    return ", ".join(part for part in (phase, "" if stage is None else f"stage {stage + 1:.0f}", epoch) if part)


def _text_of(file: Path) -> str:
    """The content of a file that need not be there."""
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
