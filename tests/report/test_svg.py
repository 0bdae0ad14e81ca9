from __future__ import annotations

import doctest
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from rbprune.report import svg
from rbprune.report.svg import (
    NARROW,
    WIDE,
    Frame,
    Scale,
    both_widths,
    clipped,
    height_for_labels,
    padded_range,
    room_for,
    round_ticks,
    spread_labels,
)


def test_docstring_examples() -> None:
    outcome = doctest.testmod(svg)
    assert outcome.attempted and not outcome.failed


def test_ticks_are_round_and_inside() -> None:
    for low, high in [(0, 1), (6.2, 16.3), (0.001, 0.0011), (-3, 3), (0, 1e9), (5, 5)]:
        values = round_ticks(low, high)
        assert 1 <= len(values) <= 7
        assert all(low - 1e-9 <= value <= high + 1e-9 for value in values)


def test_a_scale_maps_its_ends_to_its_pixels_even_without_a_range() -> None:
    scale = Scale(2.0, 4.0, 100, 50)
    assert [scale(value) for value in (2.0, 3.0, 4.0)] == [100, 75, 50]
    assert Scale(2.0, 2.0, 100, 50)(2.0) == 100


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 10.0], [3.0, 4.0], [-1.0, 1.0]])
def test_a_padded_range_holds_its_values_and_stays_at_zero(values: list[float]) -> None:
    low, high = padded_range(values)
    assert low <= min(values) and max(values) < high
    assert (low >= 0) == (min(values) >= 0)


def test_as_many_labels_as_a_frame_is_high_for_stay_apart_and_inside() -> None:
    frame = Frame(100, height_for_labels(20))
    levels = spread_labels([frame.ground - 1.0] * 20, frame.ground)
    assert min(b - a for a, b in pairwise(sorted(levels))) >= svg.LABEL_SPACING
    assert frame.top - 4 <= min(levels) and max(levels) <= frame.ground


def axes(frame: Frame, x: Scale | None, y: Scale | None) -> ElementTree.Element:
    return ElementTree.fromstring(frame.drawing("<t>", frame.axes(x, y, "a & b", strokes=True)))


def test_the_grid_lies_at_the_ticks_of_y_and_stands_at_those_of_x_without_it() -> None:
    frame = Frame(200, 100)
    x, y = frame.x_scale(0, 10), frame.y_scale(0, 2)
    drawn = axes(frame, x, y)
    assert [path.attrib["d"] for path in drawn.findall("path[@class='grid']")] == [
        f"M52 {y(value)}H186" for value in round_ticks(0, 2)
    ]
    drawn = axes(frame, x, None)
    assert [path.attrib["d"] for path in drawn.findall("path[@class='grid']")] == [
        f"M{x(value)} 16V60" for value in round_ticks(0, 10)
    ]


def test_every_tick_is_labelled_and_the_label_stands_in_the_middle() -> None:
    frame = Frame(200, 100)
    drawn = axes(frame, frame.x_scale(0, 10), frame.y_scale(0, 2))
    ticks = [label.text for label in drawn.findall("text[@class='tick']")]
    assert ticks == [f"{value:g}" for value in [*round_ticks(0, 2), *round_ticks(0, 10)]]
    (label,) = drawn.findall("text[@class='label']")
    assert (label.text, label.attrib["x"]) == ("a & b", "119")
    assert drawn.attrib["aria-label"] == "<t>"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_label_is_whole_where_there_was_room_for_it(width: int) -> None:
    for length in range(1, 24):
        label = "x" * length
        assert clipped(label, room_for(["a", label], width), width) == label
    far = clipped("x" * 200, room_for(["x" * 200], width), width)
    assert far.endswith("...") and len(far) < 80, "at most nearly half of the chart"


def test_labels_of_a_narrow_chart_stand_further_apart() -> None:
    for width in (WIDE, NARROW):
        frame = Frame(width, height_for_labels(9, width))
        levels = spread_labels([50.0] * 9, frame.ground, frame.label_spacing)
        assert min(b - a for a, b in pairwise(levels)) == pytest.approx(frame.label_spacing)
        assert levels[0] > 0
    assert Frame(NARROW, 100).label_spacing > 1.3 * Frame(WIDE, 100).label_spacing


def test_a_chart_for_both_widths_is_drawn_twice_or_not_at_all() -> None:
    drawn = both_widths(lambda width: Markup(f"<svg>{width}</svg>"))
    assert drawn == f'<div class="when-wide"><svg>{WIDE}</svg></div><div class="when-narrow"><svg>{NARROW}</svg></div>'
    assert both_widths(lambda width: Markup("")) == ""
