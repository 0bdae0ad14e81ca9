"""The page of a frontier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rbprune.report.frontier import frontier_chart, frontier_table, write_frontier_page


def found(**changes: Any) -> dict[str, Any]:
    points = [
        {
            "path": path,
            "costs": {"macs": 8e6 / ratio, "params": 1e6 / ratio},
            "ratios": {"macs": ratio, "params": ratio},
            "metric": "error",
            "val_error": 5.0 + ratio,
            "error": 6.0 + ratio,
            "dense_epochs": ratio - 1,
            "standard_error": 0.25,
            **changes,
        }
        for path, ratio in (("", 1.0), ("step-01-2x", 2.0), ("step-02-4x", 4.0))
    ]
    return {"cost": "macs", "points": points, "stopped": None}


def test_the_table_has_a_row_for_each_network() -> None:
    table = frontier_table(found(), "mine")
    assert [row[0] for row in table.rows] == ["dense", "step-01-2x", "step-02-4x"]
    row = dict(zip(table.columns, table.rows[2], strict=True))
    assert (row["MACs"], row["MACs reduced"], row["+-"], row["dense epochs"]) == ("2.0 M", "4.00x", "0.25", "3.0")
    assert dict(zip(table.columns, table.rows[0], strict=True))["+-"] == "", "the dense network differs by nothing"


def test_both_errors_are_drawn_where_they_are_known() -> None:
    # drawn for wide and for narrow pages
    assert frontier_chart(found()).count('class="line') == 4
    assert frontier_chart(found(val_error=None)).count('class="line') == 2
    assert frontier_chart(found(val_error=None, error=None)) == ""


def test_the_page_says_where_it_ends(tmp_path: Path) -> None:
    page = write_frontier_page(
        tmp_path / "page.html", {**found(), "stopped": "9x: <out> of reach"}, "mine", ["rbprune"]
    )
    text = page.read_text()
    assert "Frontier mine" in text and "Error against MACs" in text
    assert "9x: &lt;out&gt; of reach" in text
    plain = write_frontier_page(tmp_path / "page.html", found(), "mine", []).read_text()
    assert "Where it ends" not in plain and "Command" not in plain
