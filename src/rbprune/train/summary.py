"""What a run came to: the fields of ``summary.json``."""

from __future__ import annotations

from typing import Any

from rbprune.logging.journal import versions
from rbprune.pruner import Pruner
from rbprune.settings.sections import Config
from rbprune.train.evaluate import Score
from rbprune.train.state import State


def summarise(
    config: Config, state: State, pruner: Pruner, *, dataset_size: int, dense: tuple[int, int], score: Score | None
) -> dict[str, Any]:
    """``dense``: MACs and parameters before; ``score``: on the test set or, without one, the validation set."""
    graph, (macs_before, params_before) = pruner.graph, dense
    macs, params = graph.macs(), graph.params()
    touched = {name for stage in pruner.stages for name in stage}
    summary: dict[str, Any] = {
        "model": config.model.name,
        "method": config.prune.method,
        "seed": config.seed,
        "dataset_size": dataset_size,
        "metric": state.metric,
        "error_before": state.error_before,
        "error_after": None if score is None else score.value,
        "val_error_after": state.val_error,
        "macs_before": macs_before,
        "macs_after": macs,
        "macs_ratio": macs_before / macs,
        "params_before": params_before,
        "params_after": params,
        "params_ratio": params_before / params,
        "channels": {s.name: [s.original, s.channels] for s in graph.sites if s.name in touched},
        "undecided": state.undecided,
        "guarded": state.guarded,
        "dense_epochs": dict(state.cost),
        "seconds": state.seconds,
        "versions": versions(),
    }
    if score is not None and score.top5 is not None:
        summary |= {"top5_before": state.top5_before, "top5_after": score.top5}
    return summary
