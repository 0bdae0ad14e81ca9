"""A histogram of dropout rates r in [0, 1], what was removed stacked upon what was kept, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

BINS = 20
WIDTH, HEIGHT, FOOT = 160, 72, 14


def histogram(rates: Sequence[float], removed: int | None, title: str) -> Markup:
    """``removed`` channels are those of the highest rates; None leaves all in one colour."""
    if not rates:
        return Markup("")
    ordered = sorted(min(1.0, max(0.0, rate)) for rate in rates)
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
        f'<text class="tick" x="0" y="{HEIGHT - 3}">0</text>'
        f'<text class="tick" x="{WIDTH / 2:g}" y="{HEIGHT - 3}" text-anchor="middle">0.5</text>'
        f'<text class="tick" x="{WIDTH}" y="{HEIGHT - 3}" text-anchor="end">1</text></svg>'
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
