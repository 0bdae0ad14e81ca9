"""The page of a run: one file that needs nothing else, made anew from the events at any time."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rbprune.errors import CheckpointError
from rbprune.logging.event_fields import mapping, pair, sequence, text
from rbprune.logging.events import scan_events
from rbprune.report.charts import PHASES, curves
from rbprune.report.histogram import histogram
from rbprune.report.run import Run, gather
from rbprune.utils import numbers

TEMPLATES = Path(__file__).with_name("templates")


def write_report(folder: Path) -> Path:
    """Write ``folder/report.html`` from ``folder/events.jsonl`` and return its path."""
    folder = Path(folder)
    log = folder / "events.jsonl"
    if not log.is_file():
        raise CheckpointError(f"no events.jsonl in {str(folder)!r}; give the folder of a run")
    scan = scan_events(log)
    page = render(gather(scan.events), folder, scan.damaged)
    target = folder / "report.html"
    partial = folder / f".report.html.{os.getpid()}.tmp"
    try:
        partial.write_bytes(page.encode("utf-8", errors="replace"))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def render(run: Run, folder: Path, damaged: int = 0) -> str:
    """The page as text."""
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            damaged=damaged,
            cost=_cost(run),
            error=_error(run),
            stages=[_stage_row(stage) for stage in run.stages],
            charts=curves(run),
            histogram=histogram,
            total=_channels(run),
            widest=max((site.before or 0 for site in run.sites), default=0),
            most_macs=max((layer.macs[0] or 0 for layer in run.layers), default=0),
            most_params=max((layer.params[0] or 0 for layer in run.layers), default=0),
            names=min(24, max((len(site.name) + 7 * site.guarded for site in run.sites), default=0) + 1),
            toml=text(run.start.get("config_toml")) or _config_file(folder),
            command=shlex.join(map(text, sequence(run.start.get("command")))),
            resume=shlex.join(["rbprune", "resume", str(folder)]),
            load=f"import rbprune\n\nmodel = rbprune.load({str(folder)!r}, FreshModel())",
            versions=_versions(run),
            where=_where(run),
        )
    )


@cache
def environment() -> Environment:
    """Where pages come from: the templates, with escaping and the filters for numbers."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("count", "ratio", "percent", "score", "share", "decimal", "duration"):
        found.filters[name] = getattr(numbers, name)
    found.filters["moment"] = moment
    return found


def moment(seconds: Any) -> str:
    """A unix time as people read it, nothing when unknown."""
    try:
        return (
            datetime.fromtimestamp(numbers.number(seconds) or 0, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else ""
        )
    except (OverflowError, ValueError, OSError):
        return ""


def _cost(run: Run) -> dict[str, Any]:
    spent = {str(k): numbers.number(v) for k, v in mapping(run.summary.get("dense_epochs")).items()}
    phases = {PHASES.get(name, name): value for name, value in spent.items() if value is not None}
    if phases:
        return {"total": sum(phases.values()), "phases": {name: value for name, value in phases.items() if value}}
    known = [numbers.number(event.get("dense_epochs")) for event in run.epochs]
    return {"total": max((value for value in known if value is not None), default=None), "phases": {}}


def _error(run: Run) -> dict[str, Any]:
    before = numbers.number(run.summary.get("error_before"))
    before = numbers.number(run.start.get("error_before")) if before is None else before
    after = numbers.number(run.summary.get("error_after"))
    validation = numbers.number(run.summary.get("val_error_after"))
    if validation is None and not run.finished:
        seen = [numbers.number(event.get("val_error")) for event in run.timeline]
        validation = next((value for value in reversed(seen) if value is not None), None)
    return {
        "before": before,
        "after": validation if after is None else after,
        "measured": after is not None,
        "change": None if before is None or after is None else after - before,
        "validation": validation,
    }


def _stage_row(stage: Mapping[str, Any]) -> dict[str, Any]:
    channels = {str(name): pair(value) for name, value in mapping(stage.get("channels")).items()}
    names = [text(name) for name in sequence(stage.get("sites"))] or list(channels)
    undecided = [numbers.number(value) for value in mapping(stage.get("undecided")).values()]
    known = [value for value in undecided if value is not None]
    index = numbers.number(stage.get("stage"))
    return {
        "event": stage,
        "number": "" if index is None else f"{index + 1:.0f}",
        "names": names,
        "before": sum(value[0] or 0 for value in channels.values()) if channels else None,
        "after": sum(value[1] or 0 for value in channels.values()) if channels else None,
        "undecided": sum(known) / len(known) if known else None,
        "guarded": [text(name) for name in sequence(stage.get("guarded"))],
        "settled": {"True": "yes", "False": "no"}.get(text(stage.get("settled")), numbers.DASH),
    }


def _channels(run: Run) -> tuple[float | None, float | None]:
    """All channels before and now; a site whose turn has not come still has all of its own."""
    before = [site.before for site in run.sites if site.before is not None]
    after = [site.before if site.after is None else site.after for site in run.sites]
    begun = any(site.after is not None for site in run.sites)
    return sum(before) if before else None, sum(width or 0 for width in after) if begun else None


def _versions(run: Run) -> dict[str, str]:
    versions = {"rbprune": text(run.start.get("version"))} if run.start.get("version") else {}
    return versions | {str(name): text(value) for name, value in mapping(run.summary.get("versions")).items()}


def _where(run: Run) -> str:
    """How far an unfinished run came."""
    last = next(iter(run.epochs[-1:]), None)
    if last is None:
        return ""
    phase = PHASES.get(text(last.get("phase")), text(last.get("phase")))
    stage = numbers.number(last.get("stage"))
    epoch = f"epoch {text(last.get('epoch'))}" + (f" of {text(last['epochs'])}" if last.get("epochs") else "")
    return ", ".join(part for part in (phase, "" if stage is None else f"stage {stage + 1:.0f}", epoch) if part)


def _config_file(folder: Path) -> str:
    path = folder / "config.toml"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
