"""What is left of each layer beside what it had, as columns, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup, escape

from rbprune.report.axis import Scale, ticks

LEFT, RIGHT, TOP, BOTTOM = 52, 8, 16, 40


def columns(channels: Mapping[str, tuple[float, float]], *, title: str, width: int = 1060, height: int = 260) -> Markup:
    """One pair of columns for each name: before (pale) and after. Names show on hovering, numbers below."""
    if not channels:
        return Markup("")
    most = max(before for before, _ in channels.values()) or 1.0
    y = Scale(0.0, most, height - BOTTOM, TOP)
    step = (width - LEFT - RIGHT) / len(channels)
    ground = height - BOTTOM
    parts = [f'<path class="grid" d="M{LEFT} {y(value)}H{width - RIGHT}"/>' for value in ticks(0.0, most)]
    parts += [
        f'<text class="tick" x="{LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{value:g}</text>'
        for value in ticks(0.0, most)
    ]
    every = max(1, round(22 / step))
    for number, (name, (before, after)) in enumerate(channels.items()):
        left, wide = LEFT + step * (number + 0.1), step * 0.8
        tip = escape(f"{number + 1}: {name}: {after:g} of {before:g}")
        for kind, value in (("ghost", before), ("kept", after)):
            box = f'x="{left:.1f}" y="{y(value)}" width="{wide:.1f}" height="{max(0.0, ground - y(value)):.1f}"'
            parts.append(f'<rect class="{kind}" {box}><title>{tip}</title></rect>')
        if number % every == 0:
            spot = f'x="{left + wide / 2:.1f}" y="{ground + 17}"'
            parts.append(f'<text class="tick" {spot} text-anchor="middle">{number + 1}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {ground}H{width - RIGHT}"/>')
    parts.append(
        f'<text class="label" x="{width / 2:g}" y="{height - 6}" text-anchor="middle">'
        "layers from front to back; pale: channels before</text>"
    )
    opening = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return Markup("".join([opening, *parts, "</svg>"]))
