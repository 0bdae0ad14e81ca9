"""Several curves in one chart, each with its name at its end, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from rbprune.report.axis import SPACING, Scale, apart, padded, ticks

LEFT, RIGHT, TOP, BOTTOM = 52, 150, 16, 40
DASHES = ("", "6 4", "2 3", "10 3 2 3")
"""So that curves differ without their colours too."""


def overlay(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    unit: str = " %",
    width: int = 900,
    height: int = 320,
) -> Markup:
    """Points (x, y) of each named curve; nothing where there are none."""
    series = {name: points for name, points in series.items() if points}
    if not series:
        return Markup("")
    height = max(height, round(SPACING * (len(series) + 1)) + TOP + BOTTOM)
    xs = [x for points in series.values() for x, _ in points]
    low, high = padded([y for points in series.values() for _, y in points])
    begin, end = (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 0.5, min(xs) + 0.5)
    x, y = Scale(begin, end, LEFT, width - RIGHT), Scale(low, high, height - BOTTOM, TOP)
    parts = _axes(x, y, width, height, unit)
    levels = apart([y(points[-1][1]) for points in series.values()], TOP, height - BOTTOM)
    for number, ((name, points), level) in enumerate(zip(series.items(), levels, strict=True)):
        path = "M" + "L".join(f"{x(a)} {y(b)}" for a, b in points)
        dash = DASHES[number % len(DASHES)]
        parts.append(f'<path class="line series{number % 4}" stroke-dasharray="{dash}" d="{path}"/>')
        last = points[-1]
        parts.append(f'<path class="grid" d="M{x(last[0]) + 3} {y(last[1])}L{width - RIGHT + 8} {level}"/>')
        text = escape(f"{name} {last[1]:.2f}{unit}")
        parts.append(f'<text class="refer" x="{width - RIGHT + 12}" y="{level + 4:g}">{text}</text>')
    middle = (LEFT + width - RIGHT) / 2
    parts.append(f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    opening = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return Markup("".join([opening, *parts, "</svg>"]))


def _axes(x: Scale, y: Scale, width: int, height: int, unit: str) -> list[str]:
    parts = []
    for value in ticks(y.low, y.high):
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{width - RIGHT}"/>')
        label = escape(f"{value:g}{unit}")
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{label}</text>')
    for value in ticks(x.low, x.high, most=10):
        spot = f'x="{x(value)}" y="{height - BOTTOM + 17}"'
        parts.append(f'<text class="tick" {spot} text-anchor="middle">{value:g}</text>')
    return [*parts, f'<path class="axis" d="M{LEFT} {height - BOTTOM}H{width - RIGHT}"/>']
