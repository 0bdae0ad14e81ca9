"""Networks on the way down from a dense one: each the result of a run that started from the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rbprune.errors import ConfigError
from rbprune.graph.cost import COSTS, Cost
from rbprune.measure.doubt import ErrorDifference, error_difference
from rbprune.train.evaluate import Mistakes


@dataclass(frozen=True)
class PrunedPoint:
    """One network: where it lies, what it costs, how wrong it is, and what it took to come to it."""

    path: str
    """Its run folder, within the folder of the whole; of the first, where its weights are."""
    costs: dict[str, float]
    ratios: dict[str, float]
    """How many times less it costs than the dense network, by name of the cost."""
    metric: str
    """What the errors are: ``error`` in per cent, or a mean ``loss``."""
    val_error: float | None
    error: float | None
    """On the test data, which no choice looks at."""
    dense_epochs: float = 0.0
    """What all runs up to it took, in epochs of the dense network."""
    mistakes: Mistakes | None = None
    """The validation examples that it gets wrong, where they are known."""

    def to_dict(self) -> dict[str, Any]:
        """Everything but the mistakes, which lie in the run folder."""
        return {name: value for name, value in asdict(self).items() if name != "mistakes"}

    def worse_than(self, other: PrunedPoint) -> ErrorDifference | None:
        """By how much its validation error is above another network's, where both know their mistakes."""
        if self.mistakes is None or other.mistakes is None:
            return None
        return error_difference(other.mistakes, self.mistakes)


def read_mistakes(found: Mapping[str, Any], when: str) -> Mistakes | None:
    """The mistakes ``before`` or ``after`` a run, from the content of its ``mistakes.json``."""
    return Mistakes.from_dict(found[when]) if when in found else None


def first_point(summary: Mapping[str, Any], mistakes: Mapping[str, Any], path: str) -> PrunedPoint:
    """The network that the first run started from, from the summary of that run."""
    costs = {name: summary[f"{name}_before"] for name in COSTS if f"{name}_before" in summary}
    return PrunedPoint(
        path,
        costs,
        dict.fromkeys(costs, 1.0),
        summary["metric"],
        summary["val_error_before"],
        summary["error_before"],
        mistakes=read_mistakes(mistakes, "before"),
    )


def point_after(
    dense: PrunedPoint, before: PrunedPoint, summary: Mapping[str, Any], mistakes: Mapping[str, Any], path: str
) -> PrunedPoint:
    """The network that a run made of the one ``before``; a run counts epochs of the network that it began with."""
    costs = {name: summary[f"{name}_after"] for name in dense.costs}
    share = before.costs["macs"] / dense.costs["macs"]
    return PrunedPoint(
        path,
        costs,
        {name: dense.costs[name] / cost for name, cost in costs.items()},
        summary["metric"],
        summary["val_error_after"],
        summary["error_after"],
        before.dense_epochs + share * sum(summary["dense_epochs"].values()),
        read_mistakes(mistakes, "after"),
    )


def step_ratio(dense: PrunedPoint, before: PrunedPoint, cost: Cost, ratio: float) -> float:
    """How many times a network must shrink for its cost to be ``ratio`` times less than the dense network's."""
    return max(1.0, before.costs[cost.name] * ratio / dense.costs[cost.name])


def check_has_validation(point: PrunedPoint, what: str) -> None:
    """Refuse choices that need a validation error where there is none, or where it is no error in points."""
    check_validation_data(point.val_error is not None, what)
    if point.metric != "error":
        raise ConfigError(
            f"{what} is in points of the classification error, and the outputs and targets of this network give a mean "
            f"loss ({point.val_error:.4g} on the validation data); use a ratio such as prune.macs_ratio=2"
        )


def check_validation_data(is_there: bool, what: str) -> None:
    """Refuse choices that need validation data where there are none."""
    if not is_there:
        raise ConfigError(
            f"{what} compares validation errors, and there are no validation data: set data.val (a number of training "
            "examples to hold out), or give a val_loader"
        )
