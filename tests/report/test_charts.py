from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rbprune.report.charts import Band, Point, Reference, column_chart, histogram, line_chart, multi_line_chart

KINDS = ("ghost", "kept")


def test_the_line_stays_inside_the_drawing() -> None:
    points = [Point(x, y, "<tip>") for x, y in [(0, 5.0), (10, 90.0), (20, 6.0)]]
    svg = ElementTree.fromstring(
        line_chart(points, title="a < b", reference=Reference(5.5, "dense"), bands=[Band(0, 20, "p", "p")])
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


def test_the_label_of_the_reference_covers_the_fewest_points() -> None:
    falling = [Point(float(x), 10.0 - x, "") for x in range(10)]
    svg = ElementTree.fromstring(line_chart(falling, title="t", reference=Reference(9.5, "dense model")))
    label = next(element for element in svg.findall("text") if element.text == "dense model")
    assert float(label.attrib["x"]) > 300, "at the end, since the line is near it at its beginning"


def test_bands_and_marks_lie_where_their_values_are() -> None:
    points = [Point(0.0, 1.0, ""), Point(10.0, 2.0, "")]
    bands = [Band(0, 5, "prune", "prune"), Band(5, 10, "fine-tune", "finetune")]
    svg = ElementTree.fromstring(line_chart(points, title="t", bands=bands, marks=[5, 99]))
    first, second = svg.findall("rect")
    assert float(first.attrib["x"]) + float(first.attrib["width"]) == float(second.attrib["x"]) == 279
    assert [mark.attrib["d"] for mark in svg.findall("path[@class='mark']")] == ["M279.0 200v-6"]
    assert [label.text for label in svg.findall("text[@class='phase']")] == ["prune", "fine-tune"]


def test_several_lines_carry_their_names_and_last_values_apart_from_each_other() -> None:
    lines = {f"<{i}>": [(0.0, 10.0 + i), (2.0, 7.0)] for i in range(30)} | {"empty": []}
    svg = ElementTree.fromstring(multi_line_chart(lines, title="t", x_label="epochs"))
    names = svg.findall("text[@class='refer']")
    assert [name.text for name in names] == [f"<{i}> 7.00 %" for i in range(30)]
    heights = sorted(float(name.attrib["y"]) for name in names)
    assert min(b - a for a, b in pairwise(heights)) >= 13.9
    assert heights[0] > 0 and heights[-1] < int(svg.attrib["viewBox"].split()[-1])
    dashes = {path.attrib.get("stroke-dasharray") for path in svg.findall("path") if "line" in path.attrib["class"]}
    assert len(dashes) == 4
    assert multi_line_chart({"empty": []}, title="t", x_label="") == ""


def test_a_line_of_one_point_has_an_axis_around_it() -> None:
    svg = ElementTree.fromstring(multi_line_chart({"a": [(2.0, 9.0)]}, title="t", x_label="epochs"))
    assert "nan" not in ElementTree.tostring(svg, "unicode")
    (line,) = svg.findall("path[@class='line series0']")
    (axis,) = svg.findall("path[@class='axis']")
    begin, end = (float(edge) for edge in re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", axis.attrib["d"])[0])
    assert line.attrib["d"].startswith(f"M{(begin + end) / 2} "), "in the middle"


def test_columns_are_as_high_as_the_channels_are_many() -> None:
    svg = ElementTree.fromstring(column_chart({"a<b": (64.0, 16.0), "c": (32.0, 32.0)}, title="t"))
    heights = {kind: [float(box.attrib["height"]) for box in svg.findall(f"rect[@class='{kind}']")] for kind in KINDS}
    assert heights == {"ghost": [204.0, 102.0], "kept": [51.0, 102.0]}
    assert [box.findtext("title") for box in svg.findall("rect[@class='kept']")] == [
        "1: a<b: 16 of 64",
        "2: c: 32 of 32",
    ]
    assert column_chart({}, title="t") == ""
    assert "nan" not in column_chart({"gone": (0.0, 0.0)}, title="t")


def test_a_histogram_colours_the_channels_that_went_and_not_the_highest() -> None:
    values = [0.05, 0.95]
    shown = histogram(values, 1, "conv", goes=[True, False])
    paths = dict(re.findall(r'<path class="(kept|removed)" d="M([\d.]+) ', shown))
    assert paths == {"kept": "152.5", "removed": "8.5"}
    assert 'class="removed" d="M152.5' in histogram(values, 1, "conv"), "without verdicts the highest"
    assert histogram(values, 1, "conv", goes=[True]) == histogram(values, 1, "conv"), "not one for each value"


def test_a_reference_label_at_the_right_ends_at_the_edge() -> None:
    points = [Point(0, 5, ""), Point(1, 5, ""), Point(2, 9, "")]
    label = re.search(r'<text class="refer"[^>]*>', line_chart(points, title="", reference=Reference(5, "dense")))
    assert label is not None and 'x="506" ' in label[0] and 'text-anchor="end"' in label[0]
