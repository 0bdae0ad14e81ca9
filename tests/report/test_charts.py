from __future__ import annotations

from xml.etree import ElementTree

import pytest

from rbprune.report.charts import curves
from rbprune.report.curves import Band, Point, line_chart
from rbprune.report.histogram import histogram
from rbprune.report.run import gather


def test_the_line_stays_inside_the_drawing() -> None:
    points = [Point(x, y, "<tip>") for x, y in [(0, 5.0), (10, 90.0), (20, 6.0)]]
    svg = ElementTree.fromstring(
        line_chart(points, title="a < b", reference=(5.5, "dense"), bands=[Band(0, 20, "p", "p")])
    )
    circles = svg.findall("circle")
    assert len(circles) == 3 and circles[0].findtext("title") == "<tip>"
    assert all(0 <= float(c.attrib["cx"]) <= 520 and 0 <= float(c.attrib["cy"]) <= 240 for c in circles)
    assert svg.attrib["aria-label"] == "a < b"


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0], [0.0, 0.0], [-1.0, 1.0], list(map(float, range(5000)))])
def test_any_number_of_points_can_be_drawn(values: list[float]) -> None:
    drawing = line_chart([Point(float(i), value, "") for i, value in enumerate(values)], title="t")
    assert "nan" not in drawing and len(drawing) < 40_000
    assert bool(drawing) == bool(values)


def test_the_histogram_stacks_removed_upon_kept() -> None:
    svg = ElementTree.fromstring(histogram([0.0, 0.01, 0.99, 1.0], removed=1, title="<t>"))
    kept, removed = (svg.find(f"path[@class='{name}']").attrib["d"] for name in ("kept", "removed"))  # type: ignore[union-attr]
    assert kept.count("M") == 2 and removed.count("M") == 1
    assert float(removed.split()[1].split("h")[0]) < float(kept.split()[1].split("h")[0])


def test_rates_beyond_the_range_are_drawn_at_its_ends() -> None:
    ElementTree.fromstring(histogram([-1.0, 2.0], removed=None, title=""))
    assert histogram([], removed=None, title="") == ""


def test_without_a_cost_the_axis_counts_epochs() -> None:
    events = [{"event": "epoch", "phase": "finetune", "epoch": i, "val_error": 9.0 - i} for i in range(3)]
    (chart,) = curves(gather(events))
    assert chart.title == "Validation error" and ">epochs<" in chart.drawing


def test_the_recovery_begins_where_pruning_ended() -> None:
    events = [
        {"event": "epoch", "phase": "prune", "stage": 0, "epoch": 1, "dense_epochs": 1.0, "val_error": 9.0},
        {"event": "stage", "stage": 0, "val_error": 20.0},
        {"event": "epoch", "phase": "finetune", "epoch": 1, "dense_epochs": 1.5, "val_error": 8.0},
    ]
    recovery = next(chart for chart in curves(gather(events)) if chart.title == "Recovery")
    assert "after stage 1: 20.00 %" in recovery.drawing and "9.00 %" not in recovery.drawing
