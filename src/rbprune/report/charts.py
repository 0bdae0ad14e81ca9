"""The charts of the pages, as inline SVG: one line, several lines, columns and a histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from rbprune.report.svg import (
    CHARACTER,
    WIDE,
    Frame,
    Scale,
    clipped,
    dot,
    enlargement,
    general,
    height_for_labels,
    padded_range,
    polyline,
    room_for,
    spread_labels,
    text,
)

MOST_DOTS = 150
MOST_POINTS = 1000
FEW_POINTS = 30
"""Up to so many points of a line have a dot each, which tells its value under the pointer."""
DASHES = ("", "6 4", "2 3", "10 3 2 3")
"""Patterns by which the lines of one chart differ without their colours too."""
BINS = 20


class Point(NamedTuple):
    """A point of a line, and the text that the pointer shows there."""

    x: float
    y: float
    tip: str


class Band(NamedTuple):
    """A phase of the run, drawn as a background behind the line; ``kind`` names its colour in the style sheet."""

    begin: float
    end: float
    label: str
    kind: str


class Reference(NamedTuple):
    """A dashed horizontal line at a value, with its label."""

    y: float
    label: str


def line_chart(
    points: Sequence[Point],
    *,
    title: str,
    bands: Sequence[Band] = (),
    marks: Sequence[float] = (),
    reference: Reference | None = None,
    x_label: str = "",
    show: Callable[[float], str] = general,
    from_zero: bool = False,
    width: int = 520,
    height: int = 240,
) -> Markup:
    """One line with a dot at each point, or nothing without points.

    ``marks`` are values of x that are marked on the axis, ``show`` writes the tick values of y, and ``from_zero``
    lets the axis of y begin at 0.
    """
    if not points:
        return Markup("")
    points = _thinned(sorted(points, key=lambda point: point.x))
    begin = min([points[0].x, *(band.begin for band in bands)])
    end = max([points[-1].x, *(band.end for band in bands)])
    if end <= begin:
        begin, end = begin - 0.5, end + 0.5
    values = [point.y for point in points] + ([reference.y] if reference else []) + ([0.0] if from_zero else [])
    frame = Frame(width, height, top=24)
    x = frame.x_scale(begin, end)
    y = frame.y_scale(*padded_range(values, below=0.18 if reference and reference.y <= min(values) else 0.08))
    parts = [
        *_backgrounds(bands, x, frame),
        *frame.axes(x, y, x_label, show_y=show, most_x=max(3, width // 90), strokes=True),
        *(f'<path class="mark" d="M{x(mark)} {frame.ground}v-6"/>' for mark in marks if begin <= mark <= end),
        *_line(points, x, y),
    ]
    if reference is not None:
        parts += [frame.reference(y(reference.y)), _reference_label(reference, x, y, points)]
    return frame.drawing(title, parts)


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Every n-th point and the last one, so that at most about MOST_POINTS are left."""
    every = -(-len(points) // MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def _backgrounds(bands: Sequence[Band], x: Scale, frame: Frame) -> list[str]:
    parts = []
    for band in bands:
        left, across = x(band.begin), max(0.0, round(x(band.end) - x(band.begin), 1))
        size = f'width="{across}" height="{frame.ground - frame.top}"'
        parts.append(f'<rect class="band {escape(band.kind)}" x="{left}" y="{frame.top}" {size}/>')
        if band.label and across > CHARACTER * (len(band.label) + 1.5):
            parts.append(text("phase", left + 4, frame.top - 8, band.label))
    return parts


def _line(points: Sequence[Point], x: Scale, y: Scale) -> list[str]:
    path = polyline((x(point.x), y(point.y)) for point in points)
    parts = [f'<path class="line" d="{path}"/>'] if len(points) > 1 else []
    crowded = (x.end - x.begin) / len(points) < 9
    shown = points if len(points) <= MOST_DOTS else points[-1:]
    return parts + [dot(x(p.x), y(p.y), p.tip, kind="quiet" if crowded and p is not points[-1] else "") for p in shown]


def _reference_label(reference: Reference, x: Scale, y: Scale, points: Sequence[Point]) -> str:
    """The label of the dashed line, at the end and on the side of it where it covers the fewest points."""
    level, across = y(reference.y), CHARACTER * len(reference.label)
    spots = [(left, base) for base in (level + 14, level - 6) for left in (x.begin + 6, x.end - across)]

    def covered(spot: tuple[float, float]) -> int:
        left, base = spot
        beyond = base > y.begin - 2 or base < y.end + 10
        near = sum(left - 6 <= x(p.x) <= left + across + 6 and base - 14 <= y(p.y) <= base + 5 for p in points)
        return near + len(points) * beyond

    left, base = min(spots, key=covered)
    if left > x.begin + 6:  # its end is what must not leave the page, whatever size the letters have
        return text("refer", x.end, base, reference.label, anchor="end")
    return text("refer", left, base, reference.label)


def multi_line_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    unit: str = " %",
    width: int = WIDE,
    height: int = 320,
) -> Markup:
    """Named lines through points (x, y), each with its name and last value at its end; nothing without points."""
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Markup("")
    labels = [f"{name} {points[-1][1]:.2f}{unit}" for name, points in lines.items()]
    frame = Frame(width, max(height, height_for_labels(len(lines), width)), right=8 + room_for(labels, width))
    xs = [x for points in lines.values() for x, _ in points]
    x = frame.x_scale(*((min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 0.5, min(xs) + 0.5)))
    y = frame.y_scale(*padded_range([y for points in lines.values() for _, y in points]))
    parts = frame.axes(x, y, x_label, show_y=lambda value: f"{value:g}{unit}", most_x=max(3, width // 90))
    levels = spread_labels([y(points[-1][1]) for points in lines.values()], frame.ground, frame.label_spacing)
    for number, (name, points, label, level) in enumerate(zip(lines, lines.values(), labels, levels, strict=True)):
        path, kind, dash = (
            polyline((x(a), y(b)) for a, b in points),
            f"series{number % 4}",
            DASHES[number % len(DASHES)],
        )
        parts.append(f'<path class="line {kind}" stroke-dasharray="{dash}" d="{path}"/>')
        if len(points) <= FEW_POINTS:
            parts += [dot(x(a), y(b), f"{name} {b:.2f}{unit} at {a:g}", kind=kind) for a, b in points]
        end = points[-1]
        parts.append(f'<path class="grid" d="M{x(end[0]) + 3} {y(end[1])}L{frame.right_edge + 8} {level}"/>')
        parts.append(text("refer", frame.right_edge + 12, level + 4, clipped(label, frame.right - 8, width)))
    return frame.drawing(title, parts)


def column_chart(
    channels: Mapping[str, tuple[float, float]], *, title: str, width: int = WIDE, height: int = 260
) -> Markup:
    """For each named layer its channels before (a pale column) and after pruning (a column in front of it).

    Below the columns stand the numbers of the layers; the pointer shows their names.
    """
    if not channels:
        return Markup("")
    frame = Frame(width, height, right=8)
    most = max(before for before, _ in channels.values()) or 1.0
    y = frame.y_scale(0.0, most)
    step = (frame.right_edge - frame.left) / len(channels)
    every = max(1, round(22 * enlargement(width) / step))
    columns = []
    for number, (name, (before, after)) in enumerate(channels.items()):
        left, wide = frame.left + step * (number + 0.1), step * 0.8
        tip = escape(f"{number + 1}: {name}: {after:g} of {before:g}")
        for kind, value in (("ghost", before), ("kept", after)):
            box = f'x="{left:.1f}" y="{y(value)}" width="{wide:.1f}" height="{max(0.0, frame.ground - y(value)):.1f}"'
            columns.append(f'<rect class="{kind}" {box}><title>{tip}</title></rect>')
        if number % every == 0:
            columns.append(text("tick", left + wide / 2, frame.ground + 17, str(number + 1), anchor="middle"))
    axes = frame.axes(None, y, "layers from front to back; pale: channels before")
    return frame.drawing(title, [*axes, *columns])


def histogram(
    values: Sequence[float],
    removed: int | None,
    title: str,
    limits: tuple[float, float] | None = (0.0, 1.0),
    goes: Sequence[bool] | None = None,
) -> Markup:
    """How the values of the channels of one site are spread over ``limits``, or over their own range without them.

    Removed channels are stacked upon those that were kept: those that ``goes`` says or, where it does not tell of each
    value, the ``removed`` highest. With neither all have one colour.
    """
    if not values:
        return Markup("")
    width, height, ground = 160, 72, 58
    left, right = limits or (min(values), max(values))
    span = (right - left) or 1.0
    shares = [min(1.0, max(0.0, (value - left) / span)) for value in values]
    if goes is None or len(goes) != len(shares):
        kept = len(shares) - min(len(shares), max(0, removed or 0))
        shares = sorted(shares)
        goes = [number >= kept for number in range(len(shares))]
    below = _binned([value for value, gone in zip(shares, goes, strict=True) if not gone])
    above = _binned([value for value, gone in zip(shares, goes, strict=True) if gone])
    unit = (ground - 2) / max(a + b for a, b in zip(below, above, strict=True))
    tops = [ground - unit * size for size in below]
    return Markup(
        f'<svg class="histogram" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title>"
        f'<path class="kept" d="{_bars(below, [ground] * BINS, unit, width / BINS)}"/>'
        f'<path class="removed" d="{_bars(above, tops, unit, width / BINS)}"/>'
        f'<path class="axis" d="M0 {ground}H{width}"/>'
        + text("tick", 0, height - 3, f"{left:.3g}")
        + text("tick", width / 2, height - 3, f"{(left + right) / 2:.3g}", anchor="middle")
        + text("tick", width, height - 3, f"{right:.3g}", anchor="end")
        + "</svg>"
    )


def _binned(shares: Sequence[float]) -> list[int]:
    """How many of the numbers from 0 to 1 fall into each of BINS bins of equal width."""
    counts = [0] * BINS
    for share in shares:
        counts[min(BINS - 1, int(share * BINS))] += 1
    return counts


def _bars(counts: Sequence[int], ground: Sequence[float], unit: float, wide: float) -> str:
    """The path of one bar per bin, ``unit`` pixels high for each count, that stands on the bin's ground."""
    return "".join(
        f"M{index * wide + 0.5:g} {level:.1f}h{wide - 1:g}v{-unit * size:.1f}h{1 - wide:g}z"
        for index, (size, level) in enumerate(zip(counts, ground, strict=True))
        if size
    )
