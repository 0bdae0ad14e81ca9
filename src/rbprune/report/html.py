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
from rbprune.report.glossary import GLOSSARY
from rbprune.report.run_charts import phase_name, run_charts
from rbprune.report.run_record import RunRecord, gather_run
from rbprune.utils import numbers
from rbprune.utils.files import write_atomic
from rbprune.utils.numbers import as_number

TEMPLATES = Path(__file__).with_name("templates")


def write_report(page: Path, *, events: Path, settings: Path, refresh: int | None = None) -> Path:
    """Write the page of the run whose log is ``events``, and return its path.

    The run is named by the folder in which its log lies. Where the log does not hold the settings, they are read
    from the file ``settings``, if there is one. With ``refresh`` a browser reads the page of an unfinished run anew
    after so many seconds.
    """
    if not events.is_file():
        raise CheckpointError(f"no {events.name} in {str(events.parent)!r}; give the folder of a run")
    scan = scan_events(events)
    html = render(gather_run(scan.events), events.parent, settings, scan.damaged, refresh)
    return write_atomic(page, html.encode("utf-8", errors="replace"))


def render(run: RunRecord, folder: Path, settings: Path, damaged: int = 0, refresh: int | None = None) -> str:
    """The page of a run as HTML; ``damaged`` is how many lines of its events could not be read."""
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            damaged=damaged,
            refresh=None if run.finished else refresh,
            spent=_spent(run),
            error=error_of(run),
            verdict=verdict_of(run),
            latency=latency_of(run),
            stages=[_stage_row(stage) for stage in run.stages],
            cuts_are_measured=any(as_number(stage.get("measured")) is not None for stage in run.stages),
            charts=run_charts(run),
            histogram=histogram,
            total=_arrow(run.channels),
            prices=_prices(run),
            judged=[site for site in run.sites if site.is_open or site.is_branch],
            shown_values=[site for site in run.sites if site.values and not site.is_branch],
            left_alone=[site for site in run.sites if not site.is_open and not site.is_branch],
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


LEVELS = {"good": "good", "bad": "bad"}
"""The levels of a verdict with the classes of the style sheet that colour them; every other one is a warning."""


def verdict_of(run: RunRecord) -> dict[str, str] | None:
    """What the run came to, in words, once it is complete: ``level`` as the run says it, ``kind`` (good, warning or
    bad) and ``text``."""
    found = as_mapping(run.summary.get("verdict"))
    if not found:
        return None
    level = as_text(found.get("level"))
    return {"level": level, "kind": LEVELS.get(level, "warning"), "text": as_text(found.get("text"))}


def latency_of(run: RunRecord) -> dict[str, Any] | None:
    """The latency that was measured at the end of the run, where it was."""
    found = as_mapping(run.summary.get("measured_latency"))
    numbers_of = {key: as_number(found.get(key)) for key in ("dense_ms", "pruned_ms", "ratio")}
    return {**numbers_of, **{key: as_text(found.get(key)) for key in ("batch", "machine")}} if found else None


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
    found.globals["glossary"] = GLOSSARY
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


def error_of(run: RunRecord) -> dict[str, Any]:
    """The error (or loss) before and after pruning, each on the test data and on the validation data.

    The two kinds are never mixed: what a run that still goes has validated last stands beside the validation error of
    the dense network.
    """
    before = as_number(run.summary.get("error_before"))
    before = as_number(run.start.get("error_before")) if before is None else before
    after = as_number(run.summary.get("error_after"))
    validation = as_number(run.summary.get("val_error_after"))
    if validation is None and not run.finished:
        seen = [as_number(event.get("val_error")) for event in run.timeline]
        validation = next((value for value in reversed(seen) if value is not None), None)
    return {
        "before": before,
        "after": after,
        "change": None if before is None or after is None else after - before,
        "val_before": run.val_error_before,
        "val_after": validation,
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


def _arrow(pair: tuple[float | None, float | None]) -> str:
    """Two counts in full, as the terminal shows them: channels are few enough to be exact.

    >>> _arrow((570, 64)), _arrow((1200, None)), _arrow((None, None))
    ('570 → 64', '1200', '')
    """
    return " → ".join(f"{value:.0f}" for value in pair if value is not None)


def _prices(run: RunRecord) -> tuple[float, float] | None:
    """The lowest and the highest price of a channel, where the method has prices."""
    known = [value for site in run.sites for value in site.price if value is not None]
    return (min(known), max(known)) if known else None


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
