"""What a run came to: the fields of ``summary.json``."""

from __future__ import annotations

from typing import Any

from rbprune.errors import NumericalError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import COSTS, CountedCost, known_costs
from rbprune.logging.journal import versions
from rbprune.pruner import Pruner
from rbprune.settings.sections import Settings
from rbprune.train.evaluate import Score
from rbprune.train.outcome import judge_run
from rbprune.train.state import RunState
from rbprune.utils.finite import broken_numbers


def summarise(
    settings: Settings,
    state: RunState,
    pruner: Pruner,
    *,
    dataset_size: int,
    dense: dict[str, float],
    score: Score | None,
) -> dict[str, Any]:
    """What the run reached. ``dense`` is what the dense network cost, by name of the cost; ``score`` is on the test set
    or, without one, on the validation set."""
    graph = pruner.graph
    broken = broken_numbers(pruner.model)
    if broken is not None:
        raise NumericalError(
            f"the run ends with a network that is none: {broken}; lower the learning rates and run it anew"
        )
    touched = {name for stage in pruner.stages for name in stage}
    summary: dict[str, Any] = {
        "model": settings.model.name,
        "method": settings.prune.method,
        "seed": settings.seed,
        "dataset_size": dataset_size,
        "metric": state.metric,
        "error_before": state.error_before,
        "error_after": None if score is None else score.value,
        "val_error_before": state.val_error_before,
        "val_error_after": state.val_error,
        "val_lowest": state.val_lowest,
    }
    for name, cost in known_costs(graph).items():
        after = cost.total(graph)
        summary |= {f"{name}_before": dense[name], f"{name}_after": after, f"{name}_ratio": dense[name] / after}
    summary |= _total_ratios(graph)
    summary |= {
        "channels": {s.name: [s.original, s.channels] for s in graph.sites if s.name in touched}
        | {name: [channels, 0] for name, channels in graph.gone_sites.items()},
        "removed_blocks": list(graph.removed_blocks),
        "undecided": state.undecided,
        "guarded": state.guarded,
        "dense_loss": state.dense_loss,
        "explained": state.explained,
        "cuts": state.cuts,
        "dense_epochs": dict(state.cost),
        "seconds": state.seconds,
        "versions": versions(),
    }
    if settings.task == "prune":
        summary["verdict"] = judge_run(summary, settings.prune).to_dict()
    if score is not None and score.top5 is not None:
        summary |= {"top5_before": state.top5_before, "top5_after": score.top5}
    return summary


def _total_ratios(graph: ChannelGraph) -> dict[str, float]:
    """How many times smaller the network is than the original one, where it had been cut before this run."""
    if graph.earlier is None:
        return {}
    layers = graph.history().original_layers(graph.layers())
    counted = [cost for cost in COSTS.values() if isinstance(cost, CountedCost)]
    return {
        f"{cost.name}_ratio_total": sum(cost.of_layer(layer) for layer in layers) / cost.total(graph)
        for cost in counted
    }
