"""The verdict on a run: what was reached against what was asked for, in plain words, with a remedy where it is bad."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from rbprune.graph.cost import COSTS
from rbprune.methods import PruningSettings
from rbprune.utils.numbers import decimal

NOTHING = 1.02
"""A network whose costs fell by less than this was not made smaller."""
POINTS = 1.0
"""A rise of the error by more points than this is bad."""
RISE = 0.1
"""A rise of the loss by more than this part of it is bad, where there is no error in per cent."""
UNSETTLED = 0.25
"""With a larger share of undecided channels, the decisions themselves are the first thing to mend."""
MET = 0.99
"""A ratio that was asked for is reached from this part of it on."""


@dataclass(frozen=True)
class Outcome:
    """``good``, or ``bad`` with a remedy in the text; ``unknown`` where there was no data to tell the error by."""

    level: Literal["good", "bad", "unknown"]
    text: str

    def to_dict(self) -> dict[str, str]:
        """The fields of ``summary.json``."""
        return asdict(self)


def judge_run(summary: dict[str, Any], settings: PruningSettings) -> Outcome:
    """What a finished run came to, from its summary."""
    known = {name: cost for name, cost in COSTS.items() if f"{name}_ratio" in summary}
    smaller = " and ".join(f"{summary[f'{name}_ratio']:.2f}x fewer {cost.label}" for name, cost in known.items())
    missed = _missed(summary, settings)
    if missed is not None:
        return missed
    if all(summary[f"{name}_ratio"] < NOTHING for name in known):
        return Outcome("bad", f"Nothing was removed: {_why_nothing(summary, settings)}")
    before, after = summary["error_before"], summary["error_after"]
    if before is None or after is None:
        told = "nobody knows what it cost: give validation data (val_loader, data.val)"
        return Outcome("unknown", f"{smaller}, and {told}")
    change, unit = rise(summary)
    if _is_bad(change, summary["metric"]):
        rose = f"The {summary['metric']} rose by {decimal(change)}{unit}"
        return Outcome("bad", f"{rose} for {smaller}; {_remedy(summary)}")
    back = f". {_kept_back(summary)}" if _taken_back(summary) else ""
    if change < 0:
        return Outcome("good", f"Better than the dense network by {decimal(-change, 2)}{unit}, with {smaller}{back}")
    return Outcome("good", f"{smaller}, for {decimal(change, 2)}{unit} of {summary['metric']}{back}")


def _missed(summary: dict[str, Any], settings: PruningSettings) -> Outcome | None:
    if settings.ratio is None:
        return None
    cost, asked = settings.ratio
    reached = summary[f"{cost.name}_ratio"]
    if reached >= MET * asked:
        return None
    if _taken_back(summary):
        back = f"{asked:g}x fewer {cost.label} were asked for, and {reached:.2f}x reached: {_kept_back(summary)}"
        return Outcome("bad", back)
    return Outcome(
        "bad",
        f"{asked:g}x fewer {cost.label} were asked for, and {reached:.2f}x reached: what is left may not be cut "
        f"(rbprune inspect says why), or every layer keeps its least share (prune.least = {settings.least:g})",
    )


def _why_nothing(summary: dict[str, Any], settings: PruningSettings) -> str:
    price = settings.price
    higher = "a higher price"
    if price is not None and price.nats_per_example is not None:
        higher = f"a higher price (prune.price.nats_per_example = {3 * price.nats_per_example:g})"
    elif price is not None and price.nats is not None:
        higher = f"a higher price (prune.price.nats = {3 * price.nats:g})"
    if _taken_back(summary):
        return _kept_back(summary)
    if summary.get("cuts") and not any(cut.get("settled") for cut in summary["cuts"]):
        return "no stage came to rest within its steps; longer stages (prune.epochs) decide more"
    if _unsettled(summary) > UNSETTLED:
        return f"{_unsettled(summary):.0%} of the decisions had not settled; longer stages (prune.epochs) decide more"
    return f"every channel earned more than its price; {higher} or prune.macs_ratio = 2 removes more"


def _taken_back(summary: dict[str, Any]) -> int:
    """How many channels stayed that were to go."""
    return sum(cut["asked"] - cut["gone"] for cut in summary.get("cuts", []))


def _kept_back(summary: dict[str, Any]) -> str:
    return (
        f"{_taken_back(summary)} channels that were to go have stayed, because without them the training loss would "
        "have risen by more than prune.max_rise allows; a lower prune.price asks for less, a higher one lets them go"
    )


def _unsettled(summary: dict[str, Any]) -> float:
    """The share of channels, over all sites, about which the method was not sure."""
    shares, channels = summary["undecided"], summary["channels"]
    counts = {name: channels[name][0] for name in shares if name in channels}
    return sum(shares[name] * count for name, count in counts.items()) / max(1, sum(counts.values()))


def rise(summary: dict[str, Any]) -> tuple[float, str]:
    """By how much the error rose, in points, or the loss, in per cent of what it was."""
    return _rise(summary["error_before"], summary["error_after"], summary["metric"])


def _rise(before: float, after: float, metric: str) -> tuple[float, str]:
    if metric == "error":
        return after - before, " points"
    return 100 * (after - before) / max(abs(before), 1e-12), " %"


def _is_bad(change: float, metric: str) -> bool:
    """Whether it is bad if an error rises by so many points, or a loss by so many per cent."""
    return change > (POINTS if metric == "error" else 100 * RISE)


def _overfitted(summary: dict[str, Any]) -> str | None:
    """What to say where the validation error was clearly lower earlier in the recovery than at its end."""
    lowest, after, metric = summary.get("val_lowest"), summary.get("val_error_after"), summary["metric"]
    if lowest is None or after is None or not _is_bad(_rise(lowest["val_error"], after, metric)[0], metric):
        return None
    when = f"after epoch {lowest['epoch']} of" if lowest["epoch"] else "before"
    unit = " %" if metric == "error" else ""
    return (
        f"the validation {metric} was {lowest['val_error']:.3g}{unit} {when} the fine-tuning and has risen to "
        f"{after:.3g}{unit} since, so the network learns its training data by heart: fewer finetune.epochs, a lower "
        "finetune.lr, more or augmented data"
    )


def _remedy(summary: dict[str, Any]) -> str:
    by_heart = _overfitted(summary)
    if by_heart is not None:
        return by_heart
    share = _unsettled(summary)
    if share > UNSETTLED:
        return f"{share:.0%} of the decisions had not settled: give the stages more data (prune.epochs)"
    if summary["guarded"]:
        return f"all channels of {summary['guarded'][0]!r} were redundant: a lower prune.price keeps more"
    return "a lower prune.price (or ratio) keeps more, and longer fine-tuning (finetune.epochs) recovers more"
