"""Networks on the way down: ratios and costs against the dense one."""

from __future__ import annotations

from typing import Any

import pytest

from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS, PARAMS
from rbprune.runs.point import PrunedPoint, check_has_validation, first_point, point_after, step_ratio


def summary(before: float, after: float, **fields: Any) -> dict[str, Any]:
    costs = {f"{n}_{when}": v for n in ("macs", "params") for when, v in (("before", before), ("after", after))}
    errors = {"error_before": 4.0, "error_after": 5.0, "val_error_before": 6.0, "val_error_after": 7.0}
    return {"metric": "error", **costs, **errors, "dense_epochs": {"prune": 1.0, "finetune": 3.0}, **fields}


def test_ratios_and_epochs_are_of_the_dense_network() -> None:
    mistakes = {
        "before": {"examples": 10, "wrong": [1], "order": 3},
        "after": {"examples": 10, "wrong": [], "order": 3},
    }
    dense = first_point(summary(100, 50), mistakes, "dense")
    assert (dense.costs["macs"], dense.ratios["macs"], dense.val_error, dense.error) == (100, 1, 6.0, 4.0)
    half = point_after(dense, dense, summary(100, 50), mistakes, "a")
    fifth = point_after(dense, half, summary(50, 20), {}, "b")
    assert (half.ratios["params"], fifth.ratios["macs"]) == (2, 5)
    assert (half.dense_epochs, fifth.dense_epochs) == (4.0, 6.0), "four epochs of a half are two"
    assert half.worse_than(dense) is not None and fifth.worse_than(dense) is None
    assert PrunedPoint(**half.to_dict(), mistakes=half.mistakes) == half
    assert step_ratio(dense, half, MACS, 4) == 2
    assert step_ratio(dense, fifth, PARAMS, 4) == 1, "it is smaller already"


def test_choices_by_the_validation_error_need_one_in_points() -> None:
    dense = first_point(summary(100, 50, val_error_before=None), {}, "")
    with pytest.raises(
        ConfigError, match="x compares validation errors, and there are no validation data: set data.val"
    ):
        check_has_validation(dense, "x")
    dense = first_point(summary(100, 50, metric="loss"), {}, "")
    with pytest.raises(ConfigError, match=r"x is in points of the classification error, .* a mean loss .6 on"):
        check_has_validation(dense, "x")
    check_has_validation(first_point(summary(100, 50), {}, ""), "x")
