"""The table, the charts and the page of a comparison."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from rbprune.graph.cost import COSTS, LATENCY, MACS, PARAMS, CountedCost
from rbprune.report.comparison import (
    ComparisonRow,
    comparison_columns,
    comparison_table,
    error_over_cost,
    highest_shown,
    ranking_chart,
    write_page,
)


def test_names_in_the_plot_do_not_lie_on_each_other_and_a_failure_squeezes_nobody() -> None:
    rows = [ComparisonRow((f"m{i}", "", "", "", "", "", ""), 2.0, (9.9 + i / 10, 10.1 + i / 10)) for i in range(30)]
    plot = str(error_over_cost([*rows, ComparisonRow(("lost", "", "", "", "", "", ""), 2.0, (60.0,))], 8.0, "MACs"))
    width, height = (int(size) for size in re.findall(r'viewBox="0 0 (\d+) (\d+)"', plot)[0])
    labels = [
        (float(x), float(y)) for x, y in re.findall(r'<text class="(?:tick|refer)" x="([\d.]+)" y="([\d.]+)">', plot)
    ]
    heights = sorted(y for x, y in labels if x > width - 150)
    assert len(heights) == 32
    assert min(b - a for a, b in pairwise(heights)) >= 13.9
    assert heights[-1] < height
    assert "lost (60.00 %)" in plot
    spots = {float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', plot)}
    assert max(spots) - min(spots) > 200


def test_methods_at_equal_costs_look_equal() -> None:
    rows = [ComparisonRow((f"m{i}", "", "", "", "", "", "", ""), 2.29 + i / 200, (10.0 + i,)) for i in range(4)]
    spots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', str(error_over_cost(rows, None, "MACs")))]
    assert max(spots) - min(spots) < 40, "less than a percent apart, on an axis of 540"


def test_methods_stand_in_the_order_of_their_mean_error_with_every_seed_shown() -> None:
    def of(name: str, *errors: float) -> ComparisonRow:
        return ComparisonRow((name, "", "", "", "", "", ""), 2.0, errors)

    lost = ComparisonRow(("lost", "failed, see the notes", "", "", "", "", ""))
    plot = str(ranking_chart([of("second", 10.0, 11.0), lost, of("far", 70.0, 80.0), of("first", 9.0, 11.5)], 8.0))
    names = re.findall(r'<text class="refer" x="[\d.]+" y="([\d.]+)" text-anchor="end">([^<]+)</text>', plot)
    assert [name for _, name in sorted(names, key=lambda name: float(name[0]))] == ["first", "second", "far"]
    assert "10.25 % at 2.00x" in plot
    assert "75.00 % at 2.00x" in plot
    spots = {title: float(x) for x, title in re.findall(r'<circle cx="([\d.]+)"[^>]*><title>([\d.]+) %', plot)}
    assert spots["9.00"] < spots["10.00"] < spots["11.00"] < spots["11.50"] < spots["70.00"] == spots["80.00"]
    assert ">&gt; 75.00 % at 2.00x<" in plot and "&gt; 10.25" not in plot, "only what is beyond the edge says so"
    assert spots["11.50"] - spots["9.00"] > 200, "the far one squeezes nobody"
    assert ranking_chart([of("alone", 9.0)], None) == ""


def test_a_seed_far_from_the_mean_of_its_method_is_drawn_where_it_is() -> None:
    def of(name: str, *errors: float) -> ComparisonRow:
        return ComparisonRow((name, "", "", "", "", "", ""), 2.0, errors)

    plot = str(ranking_chart([of("a", 10.0, 20.0), of("b", 15.4, 15.6), of("c", 15.1, 16.1)], 15.0))
    spots = {title: float(x) for x, title in re.findall(r'<circle cx="([\d.]+)"[^>]*><title>([\d.]+) %', plot)}
    assert spots["15.40"] < spots["15.60"] < spots["16.10"] < spots["20.00"] - 100
    assert spots["15.10"] < (spots["10.00"] + spots["20.00"]) / 2 + 10, "one scale for all"


def test_a_row_knows_the_mean_and_the_spread_of_its_errors() -> None:
    row = ComparisonRow(("rbp", "", "", "", "", "", "", ""), 2.0, (9.0, 10.0, 11.0))
    assert (row.name, row.error, row.spread) == ("rbp", 10.0, 1.0)
    assert ComparisonRow(("rbp",), 2.0, (9.0,)).spread == 0


@pytest.mark.parametrize(
    ("errors", "dense", "most"), [([10.0, 10.0], None, 10.5), ([10.0, 12.0, 50.0], None, 20.0), ([10.0], 9.0, 14.0)]
)
def test_what_would_squeeze_the_others_is_told_by_median_and_best(
    errors: list[float], dense: float | None, most: float
) -> None:
    assert highest_shown(errors, dense) == most


def test_differences_to_the_first_are_shown_only_where_there_are_some() -> None:
    first = ComparisonRow(("rbp", "4", "2.0", "2.0", "", "9.0", "", "1.0", "7"), 2.0, (9.0,))
    other = ComparisonRow(("l1", "4", "2.0", "2.0", "", "9.5", "+0.50 +- 0.10", "1.0", "7"), 2.0, (9.5,))
    alone, both = comparison_table([first], "one"), comparison_table([first, other], "two")
    columns = tuple(name for name in comparison_columns() if name != LATENCY.label)
    assert alone.columns == (*columns[:5], *columns[6:]) and alone.note == ""
    assert alone.rows == (("rbp", "4", "2.0", "2.0", "9.0", "1.0", "7"),)
    assert both.columns == columns and "95 % interval" in both.note
    assert both.rows == tuple((*row.cells[:4], *row.cells[5:]) for row in (first, other)), "nobody knows a latency"


def test_a_cost_is_a_column_where_some_run_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COSTS, "bytes", CountedCost("bytes", "bytes", lambda layer: 4 * layer.params))
    old = ComparisonRow(("rbp", "4", "2.0", "3.0", "", "", "9.0", "", "1.0", "7"), 2.0, (9.0,))
    new = ComparisonRow(("l1", "4", "2.0", "3.0", "", "3.5", "9.5", "", "1.0", "7"), 2.0, (9.5,))
    assert comparison_table([old], "old").columns[2:5] == ("MACs", "parameters", "error %")
    both = comparison_table([old, new], "both")
    assert both.columns[2:6] == ("MACs", "parameters", "bytes", "error %")
    assert [cells[4] for cells in both.rows] == ["", "3.5"]


def test_the_page_holds_the_table_both_charts_and_the_notes_all_escaped(tmp_path: Path) -> None:
    rows = [
        ComparisonRow((f"<m{i}>", "4-2", "2.0", "2.0", "", "9.0", "", "1.0", "7"), 2.0, (9.0 + i,)) for i in range(2)
    ]
    page = write_page(tmp_path, rows, "A & B", cost=MACS, dense=8.0, notes=["<note>"], command="rbprune compare <x>")
    assert page == tmp_path / "compare.html"
    html = page.read_text()
    assert "<title>A &amp; B</title>" in html
    assert html.count("<svg") == 4 and html.count("<circle") == 8, "for wide and for narrow pages"
    assert html.count("<td>&lt;m0&gt;</td>") == 1 and "&lt;note&gt;" in html and "compare &lt;x&gt;" in html
    assert "<h2>Error against MACs <" in html and ">times fewer MACs<" in html
    assert "fine-tuning. MACs, parameters: reduction. Errors" in html
    assert "dense 8.00 %" in html and "dashed: the dense network, 8.00 %" in html


def test_the_page_of_a_single_method_ranks_nothing(tmp_path: Path) -> None:
    row = ComparisonRow(("rbp", "4", "2.0", "2.0", "", "9.0", "", "1.0", "7"), 2.0, (9.0,))
    html = write_page(tmp_path, [row], "one", cost=PARAMS, dense=None, notes=[], command="").read_text()
    assert "Methods by error" not in html and html.count("<svg") == 2
    assert "<h2>Error against parameters <" in html and ">times fewer parameters<" in html
    assert error_over_cost([ComparisonRow(("lost",))], 8.0, "MACs") == ""
