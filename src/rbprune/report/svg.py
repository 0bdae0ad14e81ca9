"""What every chart is drawn on: scales, round tick values, the frame with its grid and axes, and the SVG around it.

Colours and fonts come from the page's style sheet (``templates/style.css``), by the class names used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDE, NARROW = 1060, 520
"""How many pixels wide a chart is that takes a whole row of the page, and one beside another or on a phone."""
LABEL_SPACING = 14.0
"""The least distance, in pixels, between two labels that stand below each other."""
CHARACTER = 6.5
"""About how many pixels wide a character of a label is."""
ENLARGED = 1.4
"""How many times larger the letters of a narrow chart are: on a phone it is shown at two thirds of its size."""

general = "{:g}".format
"""How a tick value is written where the chart says nothing else."""


@dataclass(frozen=True)
class Scale:
    """The linear map that takes ``low`` to the pixel ``begin`` and ``high`` to the pixel ``end``."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of ``value``, to a tenth."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.begin + share * (self.end - self.begin), 1)


@dataclass(frozen=True)
class Frame:
    """A drawing of ``width`` x ``height`` pixels whose axes leave the other four numbers free as margins."""

    width: int
    height: int
    left: int = 52
    right: int = 14
    top: int = 16
    bottom: int = 40

    @property
    def right_edge(self) -> int:
        """Where the horizontal axis ends, in pixels from the left."""
        return self.width - self.right

    @property
    def ground(self) -> int:
        """Where the horizontal axis lies, in pixels from the top."""
        return self.height - self.bottom

    @property
    def label_spacing(self) -> float:
        """The least distance, in pixels, between two labels that stand below each other."""
        return LABEL_SPACING * enlargement(self.width)

    def x_scale(self, low: float, high: float) -> Scale:
        """The scale that spreads ``low`` to ``high`` over the horizontal axis."""
        return Scale(low, high, self.left, self.right_edge)

    def y_scale(self, low: float, high: float) -> Scale:
        """The scale that spreads ``low`` to ``high`` over the vertical axis, from the ground upwards."""
        return Scale(low, high, self.ground, self.top)

    def axes(
        self,
        x: Scale | None,
        y: Scale | None,
        label: str,
        *,
        show_x: Callable[[float], str] = general,
        show_y: Callable[[float], str] = general,
        most_x: int = 6,
        strokes: bool = False,
    ) -> list[str]:
        """Grid lines, tick values, the horizontal axis and the label below it.

        With ``y`` the grid lines lie at its ticks, without it they stand at those of ``x``. Without ``x`` the chart
        writes below the axis itself. ``most_x`` is the largest number of ticks of ``x``, ``strokes`` marks them on
        the axis.
        """
        parts = []
        if y is not None:
            parts += [*self._y_ticks(y, show_y), f'<path class="axis" d="{self._across(self.ground)}"/>']
        if x is not None:
            parts += self._x_ticks(x, show_x, most_x, strokes=strokes, grid=y is None)
        middle = (self.left + self.right_edge) / 2
        return [*parts, text("label", middle, self.height - 6, label, anchor="middle")]

    def reference(self, level: float) -> str:
        """A dashed horizontal line at the pixel ``level``."""
        return f'<path class="reference" d="{self._across(level)}"/>'

    def drawing(self, title: str, parts: Iterable[str]) -> Markup:
        """The whole picture; ``title`` is what a screen reader says of it."""
        opening = (
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(title)}">'
        )
        return Markup("".join([opening, *parts, "</svg>"]))

    def _y_ticks(self, y: Scale, show: Callable[[float], str]) -> list[str]:
        parts = []
        for value in round_ticks(y.low, y.high):
            parts.append(f'<path class="grid" d="{self._across(y(value))}"/>')
            parts.append(text("tick", self.left - 8, y(value) + 4, show(value), anchor="end"))
        return parts

    def _x_ticks(self, x: Scale, show: Callable[[float], str], most: int, *, strokes: bool, grid: bool) -> list[str]:
        parts = []
        for value in round_ticks(x.low, x.high, most):
            if grid:
                parts.append(f'<path class="grid" d="M{x(value)} {self.top}V{self.ground}"/>')
            if strokes:
                parts.append(f'<path class="axis" d="M{x(value)} {self.ground}v4"/>')
            parts.append(text("tick", x(value), self.ground + 17, show(value), anchor="middle"))
        return parts

    def _across(self, level: float) -> str:
        return f"M{self.left} {level}H{self.right_edge}"


def enlargement(width: int) -> float:
    """How many times larger than on a wide chart the letters of one of this width may be."""
    return 1.0 if width > NARROW else ENLARGED


def room_for(labels: Iterable[str], width: int) -> int:
    """How many pixels the longest of these labels takes beside a chart of this width: at most nearly half of it.

    >>> room_for(["rbp", "tp-magnitude"], WIDE), room_for(["x" * 99], WIDE)
    (90, 477)
    """
    longest = max((len(label) for label in labels), default=0)
    return math.ceil(min(0.45 * width, 12 + CHARACTER * enlargement(width) * longest))


def clipped(label: str, room: float, width: int) -> str:
    """The label, cut off with three dots where it takes more than the room beside a chart of this width.

    >>> clipped("a.long.name", 52, WIDE)
    'a.lo...'
    """
    most = max(4, int((room - 12) / (CHARACTER * enlargement(width)) + 1e-9))
    return label if len(label) <= most else f"{label[: max(1, most - 2)]}..."


def both_widths(draw: Callable[[int], Markup]) -> Markup:
    """A chart drawn twice, for a wide page and for a narrow one: the style sheet shows the one that can be read."""
    wide, narrow = draw(WIDE), draw(NARROW)
    if not wide:
        return wide
    return Markup('<div class="when-wide">{}</div><div class="when-narrow">{}</div>').format(wide, narrow)


def height_for_labels(count: int, width: int = WIDE) -> int:
    """The height of a frame, with its usual margins, in which ``count`` labels and one more fit below each other."""
    return round(LABEL_SPACING * enlargement(width) * (count + 1)) + Frame.top + Frame.bottom


def text(kind: str, x: float, y: float, content: str, *, anchor: str = "") -> str:
    """Escaped text of a class of the style sheet, beginning at (x, y), or with its middle or end there.

    >>> text("tick", 12, 30.26, "a < b", anchor="end")
    '<text class="tick" x="12" y="30.3" text-anchor="end">a &lt; b</text>'
    """
    aligned = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{round(x, 1):g}" y="{round(y, 1):g}"{aligned}>{escape(content)}</text>'


def dot(x: float, y: float, tip: str, *, radius: float = 3, kind: str = "") -> str:
    """A dot of a class of the style sheet that shows ``tip`` under the pointer; a ``quiet`` one is only seen then.

    >>> dot(1.0, 2.5, "7 %", radius=4)
    '<circle cx="1.0" cy="2.5" r="4"><title>7 %</title></circle>'
    """
    named = f' class="{kind}"' if kind else ""
    return f'<circle{named} cx="{x}" cy="{y}" r="{radius}"><title>{escape(tip)}</title></circle>'


def polyline(points: Iterable[tuple[float, float]]) -> str:
    """The path through points that are given in pixels.

    >>> polyline([(0, 1.5), (2, 3.0)])
    'M0 1.5L2 3.0'
    """
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values from ``low`` to ``high`` at steps of 1, 2 or 5 times a power of ten.

    >>> round_ticks(0, 32)
    [0.0, 10.0, 20.0, 30.0]
    """
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def padded_range(values: list[float], below: float = 0.08) -> tuple[float, float]:
    """The range of ``values`` with room around it: the share ``below`` of it under the lowest, 8 % over the highest.

    The range of values that are not negative does not go below 0.

    >>> padded_range([10.0, 20.0], below=0.2)
    (8.0, 20.8)
    """
    low, high = min(values), max(values)
    span = (high - low) or 0.5 * abs(high) or 1.0
    return (max(0.0, low - below * span) if low >= 0 else low - below * span), high + 0.08 * span


def spread_labels(levels: list[float], bottom: float, spacing: float = LABEL_SPACING) -> list[float]:
    """Heights for labels near the given ones, at least ``spacing`` apart, and not below ``bottom``.

    >>> spread_labels([50.0, 51.0, 100.0], 100)
    [50.0, 64.0, 100.0]
    """
    order = sorted(range(len(levels)), key=levels.__getitem__)
    found = sorted(levels)
    for i in range(1, len(found)):
        found[i] = max(found[i], found[i - 1] + spacing)
    found[-1] = min(found[-1], bottom)
    for i in range(len(found) - 2, -1, -1):
        found[i] = min(found[i], found[i + 1] - spacing)
    placed = [0.0] * len(levels)
    for i, index in enumerate(order):
        placed[index] = found[i]
    return placed
