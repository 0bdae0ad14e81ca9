"""A run as its report shows it, gathered from its events; whatever is unknown is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rbprune.logging.event_fields import mapping, numbers, pair, sequence, text
from rbprune.utils.numbers import number, quotient

Event = Mapping[str, Any]


@dataclass
class Site:
    """One group of channels that was open to pruning, with what the last stage found about each channel."""

    name: str
    before: float | None = None
    after: float | None = None
    undecided: float | None = None
    diagnostic: str = "rate"
    values: list[float] = field(default_factory=list)
    removed: int | None = None
    price: tuple[float | None, float | None] = (None, None)
    guarded: bool = False


@dataclass(frozen=True)
class Layer:
    """What one layer costs in the dense and in the pruned model."""

    name: str
    macs: tuple[float | None, float | None]
    params: tuple[float | None, float | None]


@dataclass(frozen=True)
class Size:
    """A total before and after."""

    before: float | None
    after: float | None
    ratio: float | None


@dataclass(frozen=True)
class Run:
    """Everything the page needs."""

    start: Event
    epochs: list[Event]
    stages: list[Event]
    summary: Event
    finished: bool
    timeline: list[Event]
    sites: list[Site]
    layers: list[Layer]
    macs: Size
    params: Size
    seconds: float | None
    warnings: list[str]
    resumes: int
    last: Event

    @property
    def metric(self) -> str:
        """What is measured: an error in per cent, or a loss."""
        named = (text(event["metric"]) for event in (self.summary, *reversed(self.timeline)) if event.get("metric"))
        return next(named, "error")


def gather(events: list[dict[str, Any]]) -> Run:
    """The run that the last ``start`` began; what a resumed run did twice counts once, as done last."""
    events = _last_run(events)
    latest: dict[tuple[Any, ...], Event] = {}
    for index, found in enumerate(events):
        key = _identity(found, index)
        latest.pop(key, None)
        latest[key] = found
    timeline = list(latest.values())
    kinds: dict[str, list[Event]] = {}
    for event in timeline:
        kinds.setdefault(event["event"], []).append(event)
    dense: Event = kinds.get("dense", [{}])[-1]
    start: Event = {"error_before": dense.get("error_before"), **kinds.get("start", [{}])[-1]}
    done: Event = kinds.get("done", [{}])[-1]
    stages, summary = kinds.get("stage", []), mapping(done.get("summary"))
    return Run(
        start=start,
        epochs=kinds.get("epoch", []),
        stages=stages,
        summary=summary,
        finished=bool(done),
        timeline=timeline,
        sites=_sites(start, stages, summary),
        layers=_layers(sequence(start.get("layers")), sequence(done.get("layers"))),
        macs=_size("macs", start, stages, summary),
        params=_size("params", start, stages, summary),
        seconds=_seconds(events, summary),
        warnings=list(dict.fromkeys(text(event.get("message")) for event in kinds.get("warning", []))),
        resumes=len(kinds.get("resume", [])),
        last=events[-1] if events else {},
    )


def _last_run(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    begins = [index for index, event in enumerate(events) if event["event"] == "start"]
    return events[begins[-1] :] if begins else events


def _identity(event: Event, index: int) -> tuple[Any, ...]:
    match event["event"]:
        case "epoch":
            return ("epoch", text(event.get("phase")), text(event.get("stage")), text(event.get("epoch")))
        case "stage" if event.get("stage") is not None:
            return ("stage", text(event["stage"]))
    return (index,)


def _sites(start: Event, stages: Iterable[Event], summary: Event) -> list[Site]:
    sites = {str(name): Site(str(name), before=number(width)) for name, width in mapping(start.get("sites")).items()}

    def site(name: Any) -> Site:
        return sites.setdefault(str(name), Site(str(name)))

    for stage in stages:
        for name, value in mapping(stage.get("channels")).items():
            before, after = pair(value)
            here = site(name)
            here.before = before if here.before is None else here.before
            here.after = after
            here.removed = None if before is None or after is None else round(before - after)
        for name, value in mapping(stage.get("values")).items():
            site(name).values, site(name).diagnostic = numbers(value), text(stage.get("diagnostic", "rate"))
        for name, value in mapping(stage.get("undecided")).items():
            site(name).undecided = number(value)
        for name, value in mapping(stage.get("price")).items():
            site(name).price = pair(value)
        for name in sequence(stage.get("guarded")):
            site(name).guarded = True
    for name, value in mapping(summary.get("channels")).items():
        here, (before, after) = site(name), pair(value)
        here.before = here.before if before is None else before
        here.after = here.after if after is None else after
    for name, value in mapping(summary.get("undecided")).items():
        site(name).undecided = number(value)
    return list(sites.values())


def _layers(before: list[Any], after: list[Any]) -> list[Layer]:
    dense = {text(mapping(row).get("name")): mapping(row) for row in before}
    pruned = {text(mapping(row).get("name")): mapping(row) for row in after}

    def both(name: str, key: str) -> tuple[float | None, float | None]:
        gone = 0.0 if pruned and name not in pruned else None
        return number(dense.get(name, {}).get(key)), number(pruned.get(name, {}).get(key)) if gone is None else gone

    return [Layer(name, both(name, "macs"), both(name, "params")) for name in dict.fromkeys([*dense, *pruned])]


def _size(key: str, start: Event, stages: list[Event], summary: Event) -> Size:
    last: Event = stages[-1] if stages else {}
    before = _first(summary.get(f"{key}_before"), start.get(key))
    after = _first(summary.get(f"{key}_after"), last.get(key))
    return Size(before, after, _first(summary.get(f"{key}_ratio"), quotient(before, after), last.get(f"{key}_ratio")))


def _seconds(events: list[dict[str, Any]], summary: Event) -> float | None:
    known = number(summary.get("seconds"))
    times = numbers([event.get("time") for event in events])
    return known if known is not None else max(times) - min(times) if times else None


def _first(*values: Any) -> float | None:
    return next((found for found in map(number, values) if found is not None), None)
