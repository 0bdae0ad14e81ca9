"""Methods in the order of their error, for comparisons whose MACs hardly differ."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from rbprune.report.axis import Scale, padded, ticks
from rbprune.report.line import Line, ceiling

LEFT, RIGHT, TOP, BOTTOM, ROW = 112, 132, 6, 40, 22


def standing(lines: Sequence[Line], base: float | None, width: int = 720) -> Markup:
    """From the lowest mean error to the highest: a dot per seed, a stroke at their mean, the MACs beside them.

    Errors that would squeeze the others together lie on the right edge.
    """
    found = sorted((line for line in lines if line.macs is not None), key=lambda line: line.error)
    if len(found) < 2:
        return Markup("")
    most = ceiling([line.error for line in found], base)
    near = [error for line in found for error in line.errors if error <= most]
    low, high = padded(near + ([base] if base is not None else []))
    x, bottom = Scale(low, high, LEFT, width - RIGHT), TOP + ROW * len(found)
    parts = _axis(x, bottom, base)
    for index, line in enumerate(found):
        parts += _row(line, x, TOP + ROW * (index + 0.5))
    opening = f'<svg class="chart" viewBox="0 0 {width} {bottom + BOTTOM}" role="img" aria-label="methods by error">'
    return Markup("".join([opening, *parts, "</svg>"]))


def _row(line: Line, x: Scale, level: float) -> list[str]:
    figures = f"{line.error:.2f} % at {line.macs:.2f}x"
    return [
        f'<text class="refer" x="{LEFT - 12}" y="{level + 4}" text-anchor="end">{escape(line.cells[0])}</text>',
        *(
            f'<circle cx="{x(min(error, x.high))}" cy="{level}" r="3.5"><title>{error:.2f} %</title></circle>'
            for error in line.errors
        ),
        f'<path class="mean" d="M{x(min(line.error, x.high))} {level - 8}v16"/>',
        f'<text class="tick" x="{x.end + 10}" y="{level + 4}">{figures}</text>',
    ]


def _axis(x: Scale, bottom: float, base: float | None) -> list[str]:
    dense = "" if base is None else f"; dashed: the dense network, {base:.2f} %"
    return [
        *(f'<path class="grid" d="M{x(value)} {TOP}V{bottom}"/>' for value in ticks(x.low, x.high)),
        *(
            f'<text class="tick" x="{x(value)}" y="{bottom + 17}" text-anchor="middle">{value:g}</text>'
            for value in ticks(x.low, x.high)
        ),
        *([] if base is None else [f'<path class="reference" d="M{x(base)} {TOP}V{bottom}"/>']),
        f'<text class="label" x="{(x.begin + x.end) / 2}" y="{bottom + BOTTOM - 6}" text-anchor="middle">'
        f"test error in per cent: a dot per seed, a stroke at the mean{dense}</text>",
    ]
