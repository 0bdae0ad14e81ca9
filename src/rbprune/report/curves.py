"""A line chart over the cost of the run, as inline SVG coloured by the page's style sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from rbprune.report.axis import Scale, padded, ticks

LEFT, RIGHT, TOP, BOTTOM = 52, 14, 24, 40
MOST_DOTS = 150
MOST_POINTS = 1000


class Point(NamedTuple):
    """A value at a cost, and what the pointer shows there."""

    x: float
    y: float
    tip: str


class Band(NamedTuple):
    """A phase of the run; ``kind`` names its colour."""

    begin: float
    end: float
    label: str
    kind: str


def line_chart(
    points: Sequence[Point],
    *,
    title: str,
    bands: Sequence[Band] = (),
    marks: Sequence[float] = (),
    reference: tuple[float, str] | None = None,
    x_label: str = "",
    show: Callable[[float], str] = "{:g}".format,
    from_zero: bool = False,
    width: int = 520,
    height: int = 240,
) -> Markup:
    """The chart, or nothing without points; ``marks`` are the ends of stages, ``reference`` a dashed level."""
    if not points:
        return Markup("")
    points = _thin(sorted(points, key=lambda point: point.x))
    begin = min([points[0].x, *(band.begin for band in bands)])
    end = max([points[-1].x, *(band.end for band in bands)])
    if end <= begin:
        begin, end = begin - 0.5, end + 0.5
    values = [point.y for point in points] + ([reference[0]] if reference else []) + ([0.0] if from_zero else [])
    low, high = padded(values, below=0.18 if reference and reference[0] <= min(values) else 0.08)
    x = Scale(begin, end, LEFT, width - RIGHT)
    y = Scale(low, high, height - BOTTOM, TOP)
    body = [
        *_bands(bands, x, height),
        *_grid(x, y, width, height, show),
        *(f'<path class="mark" d="M{x(m)} {height - BOTTOM}v-6"/>' for m in marks if begin <= m <= end),
        *_line(points, x, y),
        *_reference(reference, x, y, points),
    ]
    middle = (LEFT + width - RIGHT) / 2
    body.append(f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    opening = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return Markup("".join([opening, *body, "</svg>"]))


def _bands(bands: Sequence[Band], x: Scale, height: int) -> list[str]:
    parts = []
    for band in bands:
        left, across = x(band.begin), max(0.0, round(x(band.end) - x(band.begin), 1))
        size = f'width="{across}" height="{height - TOP - BOTTOM}"'
        parts.append(f'<rect class="band {escape(band.kind)}" x="{left}" y="{TOP}" {size}/>')
        if across > 6.5 * len(band.label):
            parts.append(f'<text class="phase" x="{left + 4}" y="{TOP - 8}">{escape(band.label)}</text>')
    return parts


def _grid(x: Scale, y: Scale, width: int, height: int, show: Callable[[float], str]) -> list[str]:
    parts = []
    for value in ticks(y.low, y.high):
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{width - RIGHT}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{escape(show(value))}</text>'
        )
    for value in ticks(x.low, x.high, most=max(3, width // 90)):
        parts.append(f'<path class="axis" d="M{x(value)} {height - BOTTOM}v4"/>')
        parts.append(
            f'<text class="tick" x="{x(value)}" y="{height - BOTTOM + 17}" text-anchor="middle">{value:g}</text>'
        )
    parts.append(f'<path class="axis" d="M{LEFT} {height - BOTTOM}H{width - RIGHT}"/>')
    return parts


def _reference(reference: tuple[float, str] | None, x: Scale, y: Scale, points: Sequence[Point]) -> list[str]:
    """The dashed level, its label at the end and on the side where it covers the fewest points."""
    if reference is None:
        return []
    level, across = y(reference[0]), 6.5 * len(reference[1])
    spots = [(left, base) for base in (level + 14, level - 6) for left in (x.begin + 6, x.end - across)]

    def covered(spot: tuple[float, float]) -> int:
        left, base = spot
        beyond = base > y.begin - 2 or base < y.end + 10
        near = sum(left - 6 <= x(p.x) <= left + across + 6 and base - 14 <= y(p.y) <= base + 5 for p in points)
        return near + len(points) * beyond

    left, base = min(spots, key=covered)
    return [
        f'<path class="reference" d="M{x.begin} {level}H{x.end}"/>',
        f'<text class="refer" x="{left:.1f}" y="{base:.1f}">{escape(reference[1])}</text>',
    ]


def _line(points: Sequence[Point], x: Scale, y: Scale) -> list[str]:
    path = "M" + "L".join(f"{x(point.x)} {y(point.y)}" for point in points)
    parts = [f'<path class="line" d="{path}"/>'] if len(points) > 1 else []
    crowded = (x.end - x.begin) / len(points) < 9
    shown = points if len(points) <= MOST_DOTS else points[-1:]
    for point in shown:
        quiet = ' class="quiet"' if crowded and point is not points[-1] else ""
        spot = f'cx="{x(point.x)}" cy="{y(point.y)}" r="3"'
        parts.append(f"<circle{quiet} {spot}><title>{escape(point.tip)}</title></circle>")
    return parts


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    every = -(-len(points) // MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]
