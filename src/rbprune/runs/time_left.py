"""How long a run will still take, guessed from its log."""

from __future__ import annotations

from rbprune.logging.event_fields import as_list, as_mapping
from rbprune.report.run_record import Event, RunRecord
from rbprune.utils.numbers import as_number


def seconds_left(run: RunRecord) -> float | None:
    """Seconds that a run will about still take, or None where its log does not tell.

    What is left of the phase in progress is taken at its own pace, what comes after it at the pace of a dense epoch so
    far. Stages may end early, so the guess is rather too long.
    """
    if run.finished:
        return 0.0
    phase = run.epochs[-1].get("phase") if run.epochs else None
    if phase == "finetune":
        return _left_of_epochs(run, phase)
    if phase not in ("pretrain", "prune") or not _pace(run):
        return None
    config = as_mapping(run.start.get("config"))
    if config.get("task") == "train":
        return _left_of_epochs(run, "pretrain")
    pretraining = _left_of_epochs(run, phase) if phase == "pretrain" else 0.0
    budget = as_number(config.get("budget"))
    if budget is not None:  # of pruning and fine-tuning together
        parts = [pretraining, max(0.0, budget - _cost(run, "prune")) * _pace(run)]
    else:
        stages = _stages_at_most(run) if phase == "pretrain" else _left_of_stages(run)
        parts = [pretraining, stages, _fine_tuning(run)]
    return None if None in parts else sum(part or 0.0 for part in parts)


def count_stages(run: RunRecord) -> int | None:
    """How many stages the run has, once that is known."""
    planned = run.start.get("stages")
    told = as_number(run.stages[-1].get("stages")) if run.stages else None
    return len(as_list(planned)) if isinstance(planned, list) else None if told is None else round(told)


def _left_of_epochs(run: RunRecord, phase: str) -> float | None:
    """What is left of a phase that counts its epochs, at the pace of those that are over."""
    events = [event for event in run.epochs if event.get("phase") == phase]
    done, total = as_number(events[-1].get("epoch")), as_number(events[-1].get("epochs"))
    return None if not done or total is None else max(0.0, total - done) * _seconds(events) / done


def _left_of_stages(run: RunRecord) -> float | None:
    """What is left of the stages, each as long as the mean of those that are over."""
    total = count_stages(run)
    if total is None or not run.stages:
        return _stages_at_most(run)
    lasted = [as_number(stage.get("seconds")) or 0.0 for stage in run.stages]
    begun = [event for event in run.epochs if as_number(event.get("stage")) == len(run.stages)]
    return max(0.0, (total - len(run.stages)) * sum(lasted) / len(lasted) - _seconds(begun))


def _stages_at_most(run: RunRecord) -> float | None:
    """All stages at their full length, at the pace of a dense epoch; less what the first one has taken."""
    epochs, total = _epochs_of(run, "prune"), count_stages(run)
    if epochs is None or total is None:
        return None
    return max(0.0, total * epochs - _cost(run, "prune")) * _pace(run)


def _fine_tuning(run: RunRecord) -> float | None:
    """Fine-tuning that has not begun, on the network as it is now."""
    epochs, cost = _epochs_of(run, "finetune"), run.costs.get("macs")
    smaller = 1.0 if cost is None or not cost.ratio else cost.ratio
    return None if epochs is None else epochs * _pace(run) / smaller


def _epochs_of(run: RunRecord, phase: str) -> float | None:
    return as_number(as_mapping(as_mapping(run.start.get("config")).get(phase)).get("epochs"))


def _seconds(events: list[Event]) -> float:
    return sum(as_number(event.get("seconds")) or 0.0 for event in events)


def _pace(run: RunRecord) -> float:
    """Seconds of a dense epoch, over all epochs so far; 0 where their cost is unknown."""
    spent = as_number(run.epochs[-1].get("dense_epochs"))
    return _seconds(run.epochs) / spent if spent else 0.0


def _cost(run: RunRecord, phase: str) -> float:
    """Dense epochs that a phase has taken so far."""
    spent, before = 0.0, 0.0
    for event in run.epochs:
        here = as_number(event.get("dense_epochs")) or 0.0
        spent += max(0.0, here - before) if event.get("phase") == phase else 0.0
        before = here
    return spent
