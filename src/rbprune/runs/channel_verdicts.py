"""Why channels went or stayed: what a run recorded of every channel of a site, read back from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rbprune.errors import ConfigError, nearest
from rbprune.graph.cost import COSTS
from rbprune.logging.event_fields import as_mapping
from rbprune.report.plain_table import PlainTable
from rbprune.runs.folder import RunFolder


@dataclass(frozen=True)
class ChannelVerdict:
    """One channel when its site was judged; nats are over the training set unless the name says otherwise."""

    channel: int
    """Its number in the network that the run began with."""
    verdict: str
    """``goes``, ``stays``, ``undecided`` or ``taken back``."""
    value: float
    """The method's own diagnostic, higher for a more redundant channel."""
    saving: dict[str, float]
    """What goes with it, by name of the cost."""
    share: dict[str, float]
    """The same as a part of the network that the run began with."""
    evidence: float | None = None
    error: float | None = None
    price: float | None = None
    nats_per_example: float | None = None
    """By how much the loss of an example is forecast to be lower with the channel than without it alone."""

    @property
    def earned(self) -> float:
        """The part of its price that it earns; without evidence, what the method holds against it, negated."""
        if self.evidence is None or not self.price:
            return -self.value
        return self.evidence / self.price


@dataclass(frozen=True)
class JudgedChannels:
    """All channels of one site in the stage that judged it last, those that earn least of their price first."""

    site: str
    method: str
    diagnostic: str
    stage: int
    channels: tuple[ChannelVerdict, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def table(self) -> PlainTable:
        """What there is to say of each channel; methods that weigh no evidence have their score instead."""
        words = [each.verdict for each in self.channels]
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        title = f"{self.site}: stage {self.stage + 1} of {self.method}, {len(words)} channels ({counts})"
        saved = tuple(f"{cost.label} saved" for cost in COSTS.values())
        shares = tuple(f"share of {cost.label}" for cost in COSTS.values())
        weighs = any(each.evidence is not None for each in self.channels)
        if not weighs:
            rows = tuple(
                (str(each.channel), each.verdict, f"{each.value:.4g}", *_costs(each)) for each in self.channels
            )
            return PlainTable(title, ("channel", "verdict", self.diagnostic, *saved, *shares), rows, names=2)
        heads = ("channel", "verdict", "evidence", "+-", "price", "evidence / price", "nats/example", *saved, *shares)
        note = (
            "evidence: nats over the training set that removing the channel alone would cost, +- its standard error; "
            "nats/example: the same for one example, which is what keeping it buys for its share of the cost"
        )
        return PlainTable(title, heads, tuple(_weighed(each) for each in self.channels), names=2, note=note)


def _weighed(each: ChannelVerdict) -> tuple[str, ...]:
    numbers = (each.evidence, each.error, each.price, each.earned, each.nats_per_example)
    return (
        str(each.channel),
        each.verdict,
        *("" if number is None else f"{number:.3g}" for number in numbers),
        *_costs(each),
    )


def _costs(each: ChannelVerdict) -> tuple[str, ...]:
    saved = tuple(f"{each.saving[name]:.4g}" if name in each.saving else "" for name in COSTS)
    return (*saved, *(f"{each.share[name]:.3%}" if name in each.share else "" for name in COSTS))


def judged_channels(run: RunFolder, site: str) -> JudgedChannels:
    """What the run recorded of the channels of a site, in the stage that judged it last."""
    events = run.read_events()
    start: dict[str, Any] = next((event for event in reversed(events) if event["event"] == "start"), {})
    stages = [event for event in events if event["event"] == "stage"]
    judged = [event for event in stages if site in as_mapping(event.get("channels"))]
    if not judged:
        known = list(dict.fromkeys(name for event in stages for name in as_mapping(event.get("channels"))))
        hint = f"judged were {', '.join(known)}" if known else "no stage of it is over yet"
        raise ConfigError(f"the run in {run} has judged no site {site!r}{nearest(site, known)}; {hint}")
    event = judged[-1]
    record = as_mapping(as_mapping(event.get("records")).get(site))
    if not record:
        raise ConfigError(
            f"the run in {run} did not record what it knew of the channels of {site!r}: it was made by an earlier "
            "version; make the run again with this one"
        )
    channels = [_verdict(record, index, start) for index in range(len(record["channels"]))]
    ordered = tuple(sorted(channels, key=lambda each: (each.earned, each.channel)))
    return JudgedChannels(site, str(start.get("method")), str(event["diagnostic"]), int(event["stage"]), ordered)


def _verdict(record: Mapping[str, Any], index: int, start: Mapping[str, Any]) -> ChannelVerdict:
    def of(name: str) -> float | None:
        values = record.get(name)
        return None if values is None else values[index]

    saving = {name: float(value) for name, value in record["saving"].items()}
    evidence, size = of("evidence"), start.get("dataset_size")
    return ChannelVerdict(
        channel=record["channels"][index],
        verdict=record["verdict"][index],
        value=record["value"][index],
        saving=saving,
        share={name: value / start[name] for name, value in saving.items() if start.get(name)},
        evidence=evidence,
        error=of("error"),
        price=of("price"),
        nats_per_example=evidence / size if evidence is not None and size else None,
    )
