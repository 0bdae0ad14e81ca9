"""What a run says of each cost of its network."""

from __future__ import annotations

import doctest

import pytest

from rbprune.graph.cost import COSTS, CountedCost
from rbprune.logging import cost_totals as module
from rbprune.logging.cost_totals import CostTotal, cost_totals, quantity


def test_docstring_examples() -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted and not outcome.failed


def test_the_summary_counts_first_and_what_it_lacks_comes_from_the_events() -> None:
    start, stages = {"macs": 100, "params": 50}, [{"macs": 80}, {"macs": 40, "params_ratio": 1.6}]
    assert cost_totals({}, start, stages) == {
        "macs": CostTotal("MACs", 100, 40, 2.5),
        "params": CostTotal("parameters", 50, None, 1.6),
    }
    assert cost_totals({"macs_after": 20, "params_ratio": 2.0}, start, stages) == {
        "macs": CostTotal("MACs", 100, 20, 5.0),
        "params": CostTotal("parameters", 50, None, 2.0),
    }


@pytest.mark.parametrize("nothing", [None, "?", [1], float("nan"), True])
def test_a_cost_of_which_a_run_says_nothing_is_left_out(nothing: object) -> None:
    assert list(cost_totals({"macs_ratio": 2.0, "params_ratio": nothing})) == ["macs"]
    assert cost_totals({"macs_ratio": nothing}) == {
        "macs": CostTotal("MACs", None, None, None),
        "params": CostTotal("parameters", None, None, None),
    }, "where nothing is known, all are unknown"


def test_a_cost_that_is_added_needs_no_other_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COSTS, "bytes", CountedCost("bytes", "bytes", lambda layer: 4 * layer.params))
    assert cost_totals({"bytes_before": 8, "bytes_after": 4})["bytes"] == CostTotal("bytes", 8, 4, 2.0)
    assert list(cost_totals({"macs_ratio": 2.0, "params_ratio": 3.0})) == ["macs", "params"]


def test_a_heading_keeps_the_capitals_of_its_label() -> None:
    headings = [total.heading for total in cost_totals({}).values()]
    assert headings == ["MACs", "Parameters"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0, "0"), (0.0125, "0.0125"), (99.97, "100"), (853.4, "853"), (1234.5, "1.2 k")],
)
def test_amounts_of_any_size_are_readable(value: object, shown: str) -> None:
    assert quantity(value) == shown
