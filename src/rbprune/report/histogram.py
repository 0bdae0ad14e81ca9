"""A histogram of one value per channel, what was removed stacked upon what was kept, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

BINS = 20
WIDTH, HEIGHT, FOOT = 160, 72, 14


def histogram(
    values: Sequence[float], removed: int | None, title: str, limits: tuple[float, float] | None = (0.0, 1.0)
) -> Markup:
    """``removed`` channels are those of the highest values; None leaves all in one colour. Limits None: as found."""
    if not values:
        return Markup("")
    left, right = limits or (min(values), max(values))
    width = (right - left) or 1.0
    ordered = sorted(min(1.0, max(0.0, (value - left) / width)) for value in values)
    kept = len(ordered) - min(len(ordered), max(0, removed or 0))
    low, high = _bin(ordered[:kept]), _bin(ordered[kept:])
    tallest = max(a + b for a, b in zip(low, high, strict=True))
    unit = (HEIGHT - FOOT - 2) / tallest
    ground = [float(HEIGHT - FOOT)] * BINS
    tops = [level - unit * size for level, size in zip(ground, low, strict=True)]
    base = HEIGHT - FOOT
    return Markup(
        f'<svg class="histogram" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>"
        f'<path class="kept" d="{_bars(low, ground, unit)}"/><path class="removed" d="{_bars(high, tops, unit)}"/>'
        f'<path class="axis" d="M0 {base}H{WIDTH}"/>'
        f'<text class="tick" x="0" y="{HEIGHT - 3}">{left:.3g}</text>'
        f'<text class="tick" x="{WIDTH / 2:g}" y="{HEIGHT - 3}" text-anchor="middle">{(left + right) / 2:.3g}</text>'
        f'<text class="tick" x="{WIDTH}" y="{HEIGHT - 3}" text-anchor="end">{right:.3g}</text></svg>'
    )


def _bin(rates: Sequence[float]) -> list[int]:
    counts = [0] * BINS
    for rate in rates:
        counts[min(BINS - 1, int(rate * BINS))] += 1
    return counts


def _bars(counts: Sequence[int], ground: Sequence[float], unit: float) -> str:
    wide = WIDTH / BINS
    return "".join(
        f"M{index * wide + 0.5:g} {level:.1f}h{wide - 1:g}v{-unit * size:.1f}h{1 - wide:g}z"
        for index, (size, level) in enumerate(zip(counts, ground, strict=True))
        if size
    )
