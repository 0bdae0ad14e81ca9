"""The error of methods over their reduction of MACs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from markupsafe import Markup, escape

from rbprune.report.axis import SPACING, Scale, apart, padded, ticks
from rbprune.report.line import Line, ceiling

LEFT, RIGHT, TOP, BOTTOM = 52, 120, 16, 40


def scatter(lines: Sequence[Line], base: float | None, width: int = 720) -> Markup:
    """Error over the reduction of MACs, one point per method, with bars of one standard deviation.

    A method that failed by far lies on the upper edge, with its error beside its name, so that the others stay apart.
    """
    points = [(line.macs, line.error, line) for line in lines if line.macs is not None]
    if not points:
        return Markup("")
    height = max(380, round(SPACING * (len(points) + 1)) + TOP + BOTTOM)
    most = ceiling([error for _, error, _ in points], base)
    shown = [e for _, error, line in points if error <= most for e in (error - line.spread, error + line.spread)]
    middle = statistics.median(macs for macs, _, _ in points)
    across = padded([*(macs for macs, _, _ in points), 0.9 * middle, 1.1 * middle])  # equal MACs shall look equal
    up = padded(shown + ([base] if base is not None else []))
    x, y = Scale(*across, LEFT, width - RIGHT), Scale(*up, height - BOTTOM, TOP)
    parts = _axes(x, y, width, height)
    names = [(y(min(error, up[1])), (macs, error, line)) for macs, error, line in points]
    levels = apart([level for level, _ in names] + ([y(base)] if base is not None else []), TOP, height - BOTTOM)
    if base is not None:
        parts.append(f'<path class="reference" d="M{LEFT} {y(base)}H{width - RIGHT}"/>')
        parts.append(f'<text class="refer" x="{width - RIGHT + 6}" y="{levels[-1] + 4}">dense {base:.2f} %</text>')
    for (spot, (macs, error, line)), level in zip(names, levels, strict=False):
        beyond = f" ({error:.0f} %)" if error > up[1] else ""
        name = escape(line.cells[0] + beyond)
        if line.spread and not beyond:
            parts.append(f'<path class="line" d="M{x(macs)} {y(error - line.spread)}V{y(error + line.spread)}"/>')
        parts.append(f'<path class="grid" d="M{x(macs) + 5} {spot}L{width - RIGHT + 2} {level}"/>')
        parts.append(f'<circle cx="{x(macs)}" cy="{spot}" r="4"><title>{name}: {error:.2f} %</title></circle>')
        parts.append(f'<text class="tick" x="{width - RIGHT + 6}" y="{level + 4:g}">{name}</text>')
    opening = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="error against MACs">'
    return Markup("".join([opening, *parts, "</svg>"]))


def _axes(x: Scale, y: Scale, width: int, height: int) -> list[str]:
    parts = [f'<path class="grid" d="M{LEFT} {y(v)}H{width - RIGHT}"/>' for v in ticks(y.low, y.high)]
    parts += [
        f'<text class="tick" x="{LEFT - 8}" y="{y(v) + 4}" text-anchor="end">{v:g}</text>' for v in ticks(y.low, y.high)
    ]
    parts += [
        f'<text class="tick" x="{x(v)}" y="{height - BOTTOM + 17}" text-anchor="middle">{v:g}x</text>'
        for v in ticks(x.low, x.high)
    ]
    middle = (LEFT + width - RIGHT) / 2
    return [
        *parts,
        f'<path class="axis" d="M{LEFT} {height - BOTTOM}H{width - RIGHT}"/>',
        f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">'
        "MACs reduced; upwards the test error in per cent</text>",
    ]
