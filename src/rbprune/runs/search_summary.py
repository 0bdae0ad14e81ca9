"""What a search for the smallest network within an error came to: one summary and one log, as of any run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rbprune.graph.cost import COSTS, Cost
from rbprune.logging.events import json_value
from rbprune.logging.journal import versions
from rbprune.runs.error_search import SearchOutcome
from rbprune.runs.point import PrunedPoint
from rbprune.settings.sections import Settings
from rbprune.train.outcome import NOTHING, Outcome


@dataclass(frozen=True)
class StepRun:
    """One run of a search: the network that it started from, what came out, its summary and its log."""

    start: PrunedPoint
    point: PrunedPoint
    summary: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]] = ()


@dataclass
class StepRuns:
    """All runs of a search, by the paths of the networks that they made."""

    runs: dict[str, StepRun] = field(default_factory=dict)

    def add(self, run: StepRun) -> PrunedPoint:
        """Keep a run; returns the network that it made."""
        self.runs[run.point.path] = run
        return run.point

    def chain(self, point: PrunedPoint) -> list[StepRun]:
        """The runs that led from the dense network to this one, in their order."""
        found: list[StepRun] = []
        while point.path in self.runs:
            found.insert(0, self.runs[point.path])
            point = found[0].start
        return found


def summarise_search(
    found: SearchOutcome, steps: StepRuns, settings: Settings, cost: Cost, *, dataset_size: int
) -> dict[str, Any]:
    """The fields of ``summary.json``: the network that came out against the dense one, and what all steps took."""
    dense, result, chain = found.dense, found.result, steps.chain(found.result)
    last: Mapping[str, Any] = chain[-1].summary if chain else {}
    summary: dict[str, Any] = {
        "model": settings.model.name,
        "method": settings.prune.method,
        "seed": settings.seed,
        "dataset_size": dataset_size,
        "metric": dense.metric,
        "error_before": dense.error,
        "error_after": result.error,
        "val_error_before": dense.val_error,
        "val_error_after": result.val_error,
    }
    for name in dense.costs:
        summary |= {f"{name}_before": dense.costs[name], f"{name}_after": result.costs[name]}
        summary[f"{name}_ratio"] = result.ratios[name]
    if chain:
        summary |= {key: last[key] for key in chain[0].summary if key.endswith("_ratio_total") and key in last}
    merged: dict[str, float] = {}
    for run in chain:
        merged |= run.summary["undecided"]
    first: Mapping[str, Any] = chain[0].summary if chain else {}
    summary |= {
        "channels": _channels(chain),
        "undecided": merged,
        "guarded": list(dict.fromkeys(name for run in chain for name in run.summary["guarded"])),
        "dense_loss": first.get("dense_loss"),
        "explained": first.get("explained"),
        "cuts": [cut for run in chain for cut in run.summary["cuts"]],
        "dense_epochs": _dense_epochs(steps.runs.values(), dense),
        "seconds": sum(run.summary["seconds"] for run in steps.runs.values()),
        "versions": versions(),
        "search": _search(found, settings),
        "verdict": judge_search(found, settings, cost).to_dict(),
    }
    if "top5_after" in last:
        summary |= {"top5_before": first.get("top5_before"), "top5_after": last["top5_after"]}
    return summary


def _search(found: SearchOutcome, settings: Settings) -> dict[str, Any]:
    doubt = found.result.worse_than(found.dense)
    return {
        "max_error_rise": settings.prune.max_error_rise,
        "limit": found.limit,
        "standard_error": None if doubt is None else doubt.standard_error,
        "paired": None if doubt is None else doubt.paired,
        "result": found.result.path,
        "attempts": [attempt.to_dict() for attempt in found.attempts],
    }


def _channels(chain: Sequence[StepRun]) -> dict[str, list[int]]:
    """Of every site the channels that the first and the last run of the chain knew."""
    found: dict[str, list[int]] = {}
    for run in chain:
        for name, (before, after) in run.summary["channels"].items():
            found[name] = [found[name][0] if name in found else before, after]
    return found


def _dense_epochs(runs: Iterable[StepRun], dense: PrunedPoint) -> dict[str, float]:
    """What all runs took, in epochs of the dense network; a run that only trains a pruned network is fine-tuning."""
    spent = {"pretrain": 0.0, "prune": 0.0, "finetune": 0.0}
    for run in runs:
        share = run.start.costs["macs"] / dense.costs["macs"]
        for kind, epochs in run.summary["dense_epochs"].items():
            spent["finetune" if kind == "pretrain" and run.start is not dense else kind] += share * epochs
    return spent


def judge_search(found: SearchOutcome, settings: Settings, cost: Cost) -> Outcome:
    """What was reached within the limit, in plain words."""
    result, dense, allowed = found.result, found.dense, settings.prune.max_error_rise
    if result.ratios[cost.name] < NOTHING:
        least = min((attempt.ratio for attempt in found.attempts), default=1.0)
        return Outcome(
            "bad",
            f"Nothing was removed: every step that was tried, down to {least:.2f}x fewer {cost.label}, raised the "
            f"validation error by more than prune.max_error_rise = {allowed:g} points or was out of reach; allow more, "
            "give the steps a longer recovery (finetune.epochs), or hold out more validation data (data.val)",
        )
    smaller = " and ".join(f"{result.ratios[name]:.2f}x fewer {COSTS[name].label}" for name in dense.costs)
    doubt = result.worse_than(dense)
    assert result.val_error is not None and dense.val_error is not None
    told = f"{result.val_error - dense.val_error:+.2f} points" if doubt is None else str(doubt)
    return Outcome("good", f"{smaller}; the validation error changed by {told}, and {allowed:g} points were allowed")


def chain_events(
    chain: Sequence[StepRun], start: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One log of the runs that led to the result, as if they had been one run.

    Stages and epochs are counted on; ratios, costs and the numbers of channels are those of the dense network, whose
    ``start`` event is given. Steps that led nowhere are in the summary.
    """
    events: list[dict[str, Any]] = [dict(start)]
    stages = sum(event["event"] == "stage" for run in chain for event in run.events)
    stage = epochs = 0
    alive: dict[str, list[int]] = {}
    for number, run in enumerate(chain):
        spent = run.point.dense_epochs - sum(run.summary["dense_epochs"].values()) * _share(run, start)
        moved = [_moved(dict(e), run, start, stage, stages, epochs, spent) for e in run.events]
        alive = _renumber([event for event in moved if event["event"] == "stage"], alive)
        events += [event for event in moved if event["event"] in _KEPT or (event["event"] == "dense" and not number)]
        stage += sum(event["event"] == "stage" for event in run.events)
        tuned = [event["epoch"] for event in moved if event["event"] == "epoch" and event["phase"] == "finetune"]
        epochs = max([epochs, *tuned])
    last = next((event for event in reversed(chain[-1].events if chain else ()) if event["event"] == "done"), None)
    layers = last["layers"] if last else start["layers"]
    time = last["time"] if last else start["time"]
    return [*events, {"time": time, "event": "done", "summary": json_value(dict(summary)), "layers": layers}]


def _renumber(stages: Iterable[dict[str, Any]], alive: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Let the records of a step's stages count channels as the dense network does; returns what is left after them.

    ``alive`` are the channels of each site that were left when the step began, all where it is not in there.
    """
    left = dict(alive)
    for event in stages:
        records = {}
        for site, record in event.get("records", {}).items():
            before = alive.get(site)
            numbers = record["channels"] if before is None else [before[channel] for channel in record["channels"]]
            records[site] = {**record, "channels": numbers}
            pairs = zip(numbers, record["verdict"], strict=True)
            left[site] = [channel for channel, verdict in pairs if verdict != "goes"]
        event["records"] = records
    return left


_KEPT = frozenset({"epoch", "stage", "warning"})


def _share(run: StepRun, start: Mapping[str, Any]) -> float:
    return run.start.costs["macs"] / start["macs"]


def _moved(
    event: dict[str, Any], run: StepRun, start: Mapping[str, Any], stage: int, stages: int, epochs: int, spent: float
) -> dict[str, Any]:
    """An event of one run as one of the whole."""
    if event["event"] == "stage":
        event |= {"stage": event["stage"] + stage, "stages": stages}
        event |= {f"{name}_ratio": start[name] / event[name] for name in COSTS if name in event and name in start}
    elif event["event"] == "epoch":
        event["dense_epochs"] = spent + event["dense_epochs"] * _share(run, start)
        if event["stage"] is None:
            event |= {"phase": "finetune", "epoch": event["epoch"] + epochs, "epochs": event["epochs"] + epochs}
        else:
            event["stage"] += stage
    return event
