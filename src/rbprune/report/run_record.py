"""The record of a run, gathered from its events, as pages show it.

An unfinished run, or one of an older version, may lack any field: what is unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rbprune.logging.cost_totals import CostTotal, cost_totals
from rbprune.logging.event_fields import as_list, as_mapping, as_numbers, as_pair, as_text
from rbprune.utils.numbers import as_number

Event = Mapping[str, Any]


@dataclass
class SiteRecord:
    """One group of channels of the network, or one branch, with what its last stage found about each channel."""

    name: str
    before: float | None = None
    after: float | None = None
    undecided: float | None = None
    """The share of its channels that were neither kept nor dropped with certainty."""
    diagnostic: str = "rate"
    """What the values are, such as dropout rates."""
    values: list[float] = field(default_factory=list)
    """One value per channel that went into its last stage."""
    removed: int | None = None
    """How many channels its last stage removed."""
    price: tuple[float | None, float | None] = (None, None)
    """The lowest and the highest price of one of its channels, in nats."""
    guarded: bool = False
    """Whether its last channel was kept only so that the network stays whole."""
    goes: list[bool] | None = None
    """Which of the channels with ``values`` went in its last stage, where the run tells it of each."""
    is_open: bool = True
    """Whether the run judges its channels; False where the method leaves the site alone, so that nothing can go."""
    is_branch: bool = False
    """Whether it is a whole residual branch, which has no channels of its own to count."""

    @property
    def now(self) -> float | None:
        """Its channels as far as the run has come: all of them before its stage, and where it is left alone."""
        return self.before if self.after is None else self.after


@dataclass(frozen=True)
class LayerRecord:
    """The MACs and parameters of one layer, each in the dense and in the pruned network.

    Other costs are not here: the events hold these two for each layer, and a layer's share of a cost that is measured
    on the whole network, such as latency, is not known.
    """

    name: str
    macs: tuple[float | None, float | None]
    params: tuple[float | None, float | None]


@dataclass(frozen=True)
class RunRecord:
    """Everything that a page shows of a run."""

    start: Event
    epochs: list[Event]
    stages: list[Event]
    summary: Event
    finished: bool
    timeline: list[Event]
    """All events in order, each epoch and stage once."""
    sites: list[SiteRecord]
    layers: list[LayerRecord]
    costs: dict[str, CostTotal]
    """What the network costs before and after, by name of the cost; one of which the run says nothing is left out."""
    seconds: float | None
    warnings: list[str]
    resumes: int
    last: Event
    """The event that was written last."""

    @property
    def channels(self) -> tuple[float | None, float | None]:
        """The channels of all sites that the run judges, before and now, as the terminal counts them; None where
        nothing is known, or no stage is over yet."""
        counted = [site for site in self.sites if site.is_open and not site.is_branch]
        known = [site.before for site in counted if site.before is not None]
        begun = any(site.after is not None for site in counted)
        return sum(known) if known else None, sum(site.now or 0 for site in counted) if begun else None

    @property
    def val_error_before(self) -> float | None:
        """The validation error (or loss) of the dense network, the only one that validation errors of the run can be
        compared with."""
        known = as_number(self.summary.get("val_error_before"))
        return as_number(self.start.get("val_error_before")) if known is None else known

    @property
    def metric(self) -> str:
        """What the run measures: "error", in per cent, or "loss"."""
        named = (as_text(event["metric"]) for event in (self.summary, *reversed(self.timeline)) if event.get("metric"))
        return next(named, "error")


def gather_run(events: list[dict[str, Any]]) -> RunRecord:
    """The record of the run that the last ``start`` event began.

    A resumed run may have done an epoch or a stage twice: what it did last counts.
    """
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
    measured = {key: dense.get(key) for key in ("error_before", "val_error_before")}
    start: Event = {**measured, **kinds.get("start", [{}])[-1]}
    done: Event = kinds.get("done", [{}])[-1]
    stages, summary = kinds.get("stage", []), as_mapping(done.get("summary"))
    return RunRecord(
        start=start,
        epochs=kinds.get("epoch", []),
        stages=stages,
        summary=summary,
        finished=bool(done),
        timeline=timeline,
        sites=_sites(start, stages, summary),
        layers=_layers(as_list(start.get("layers")), as_list(done.get("layers"))),
        costs=cost_totals(summary, start, stages),
        seconds=_seconds(events, summary),
        warnings=list(dict.fromkeys(as_text(event.get("message")) for event in kinds.get("warning", []))),
        resumes=len(kinds.get("resume", [])),
        last=events[-1] if events else {},
    )


def _last_run(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    begins = [index for index, event in enumerate(events) if event["event"] == "start"]
    return events[begins[-1] :] if begins else events


def _identity(event: Event, index: int) -> tuple[Any, ...]:
    """A key that is the same for two events which tell of the same epoch or stage, and no others."""
    match event["event"]:
        case "epoch":
            return ("epoch", as_text(event.get("phase")), as_text(event.get("stage")), as_text(event.get("epoch")))
        case "stage" if event.get("stage") is not None:
            return ("stage", as_text(event["stage"]))
    return (index,)


def _sites(start: Event, stages: list[Event], summary: Event) -> list[SiteRecord]:
    """Every site of the network, with what its stages and then the summary say of it."""
    sites = {
        str(name): SiteRecord(str(name), before=as_number(width))
        for name, width in as_mapping(start.get("sites")).items()
    }

    def site(name: Any) -> SiteRecord:
        return sites.setdefault(str(name), SiteRecord(str(name)))

    for stage in stages:
        for name, value in as_mapping(stage.get("channels")).items():
            before, after = as_pair(value)
            here = site(name)
            here.before = before if here.before is None else here.before
            here.after = after
            here.removed = None if before is None or after is None else round(before - after)
        for name, value in as_mapping(stage.get("values")).items():
            site(name).values, site(name).diagnostic = as_numbers(value), as_text(stage.get("diagnostic", "rate"))
        for name, value in as_mapping(stage.get("undecided")).items():
            site(name).undecided = as_number(value)
        for name, value in as_mapping(stage.get("price")).items():
            site(name).price = as_pair(value)
        for name in as_list(stage.get("guarded")):
            site(name).guarded = True
        for name, record in as_mapping(stage.get("records")).items():
            site(name).goes = [as_text(verdict) == "goes" for verdict in as_list(as_mapping(record).get("verdict"))]
    for name, value in as_mapping(summary.get("channels")).items():
        here, (before, after) = site(name), as_pair(value)
        here.before = here.before if before is None else before
        here.after = here.after if after is None else after
    for name, value in as_mapping(summary.get("undecided")).items():
        site(name).undecided = as_number(value)
    _mark_what_is_judged(sites, start, stages, summary)
    return list(sites.values())


def _mark_what_is_judged(sites: Mapping[str, SiteRecord], start: Event, stages: list[Event], summary: Event) -> None:
    """Tell sites that the run judges from those that its method leaves alone, and both from whole branches.

    The summary of a finished run names those that were judged, and the first event of a run those that will be. A run
    of an older version says neither before its end: then every site may still be pruned.
    """
    counted, planned = as_mapping(summary.get("channels")), start.get("stages")
    all_sites = as_mapping(start.get("sites"))
    named = {str(name) for name in counted}
    named |= {str(name) for stage in as_list(planned) for name in as_list(stage)}
    named |= {str(name) for stage in stages for name in as_mapping(stage.get("channels"))}
    told = bool(counted) or isinstance(planned, list) or as_mapping(start.get("config")).get("task") == "train"
    for name, site in sites.items():
        site.is_open = name in named or not told
        site.is_branch = bool(all_sites) and name not in all_sites and name not in counted


def _layers(before: list[Any], after: list[Any]) -> list[LayerRecord]:
    """Every layer of the dense or the pruned network; one that only the dense network has costs nothing afterwards."""
    dense = {as_text(as_mapping(row).get("name")): as_mapping(row) for row in before}
    pruned = {as_text(as_mapping(row).get("name")): as_mapping(row) for row in after}

    def both(name: str, key: str) -> tuple[float | None, float | None]:
        gone = 0.0 if pruned and name not in pruned else None
        return as_number(dense.get(name, {}).get(key)), as_number(
            pruned.get(name, {}).get(key)
        ) if gone is None else gone

    return [LayerRecord(name, both(name, "macs"), both(name, "params")) for name in dict.fromkeys([*dense, *pruned])]


def _seconds(events: list[dict[str, Any]], summary: Event) -> float | None:
    known = as_number(summary.get("seconds"))
    times = as_numbers([event.get("time") for event in events])
    return known if known is not None else max(times) - min(times) if times else None
