"""``rbprune compare``: the row of a method as it is shown, and what is refused."""

from __future__ import annotations

import pytest

from rbprune.cli.compare import line
from rbprune.graph.cost import COSTS, CountedCost
from rbprune.report.comparison import comparison_table
from rbprune.runs.compare import MethodResults
from tests.cli.command import Refused


def ratios() -> dict[str, list[float]]:
    return {"macs": [2.0], "params": [3.0]}


def test_with_several_seeds_each_method_is_told_apart_from_the_first_or_not() -> None:
    def row(name: str, seeds: list[int], errors: list[float]) -> MethodResults:
        return MethodResults(name, name, seeds, {"a": [4, 2]}, ratios(), errors, cost=[1.0], seconds=[1.0])

    first = row("rbp", [0, 1, 2], [10.0, 11.0, 12.0])
    others = [row("uniform", [0, 1, 2], [10.9, 12.0, 13.1]), row("l1", [0, 2], [9.0, 14.0]), row("cp", [1], [9.0])]
    table = comparison_table([line(each, first) for each in (first, *others)], "three seeds")
    where = table.columns.index("to the first")
    half = 4.302653 * 0.1 / 3**0.5  # Student's t for two degrees of freedom, from the printed tables
    assert [cells[where] for cells in table.rows] == ["", f"+1.00 +- {half:.2f}", "+0.50 +- 19.06", ""]
    assert "95 % interval" in table.note
    alone = comparison_table([line(each, first) for each in (first, others[2])], "one seed in common")
    assert "to the first" not in alone.columns
    assert {len(cells) for cells in alone.rows} == {len(alone.columns)}


def test_a_row_has_its_place_by_the_cost_at_which_the_methods_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    row = MethodResults("rbp", "rbp", [0], {"a": [4, 2]}, ratios(), [9.0], cost=[1.0], seconds=[7.0])
    assert line(row, row).cells == ("rbp", "2", "2.00", "3.00", "", "9.00", "", "1.0", "7"), "no latency is known"
    assert (line(row, row).ratio, line(row, row, "params").ratio) == (2.0, 3.0)
    monkeypatch.setitem(COSTS, "bytes", CountedCost("bytes", "bytes", lambda layer: 4 * layer.params))
    later = MethodResults("l1", "l1", [0], {"a": [4, 2]}, {**ratios(), "bytes": []}, [9.0], cost=[1.0], seconds=[7.0])
    assert line(later, row).cells == ("l1", "2", "2.00", "3.00", "", "", "9.00", "", "1.0", "7")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "demo", "--methods", "rbp", "--set", "finetun.epochs=1", "--out", "x"), "finetun: unknown key"),
        (("compare", "demo", "--methods", "rbp", "--seeds", "0", "--out", "x"), "--seeds is how many runs"),
        (("compare", "demo", "--methods", "rbp,uniform", "--sweep", "2,x", "--out", "x"), "--sweep takes numbers"),
        (("compare", "demo", "--methods", "rbp", "--cost", "param", "--out", "x"), "did you mean 'params'"),
        (
            ("compare", "demo", "--methods", "rbp", "--peers", "torch-prune", "--out", "x"),
            "did you mean 'torch-pruning'",
        ),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
