"""How good the forecasts of cuts were in some runs: a row and a dot for each stage.

    python benchmarks/forecast.py RUN... [--svg docs/results/forecast.svg]

``forecast`` is what was foretold before any correction, ``measured`` the rise of the training
loss by the cut, both in nats per example. A measured rise below two of its standard errors says nothing about a ratio.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

LOW, HIGH, SIZE, LEFT = 1e-6, 1.0, 420, 60
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280")


class Cut(NamedTuple):
    """One stage of a run."""

    run: str
    sites: str
    forecast: float
    measured: float
    error: float

    @property
    def tells(self) -> bool:
        """Whether the measured rise is more than its own error."""
        return self.measured > 2 * self.error


def read(folder: Path) -> list[Cut]:
    """The cuts of a run of which both figures are known, and in which something went."""
    found = []
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "stage" or event["forecast"] is None or event["measured"] is None:
            continue
        if all(before == after for before, after in event["channels"].values()):
            continue
        forecast = event["forecast"] / event["correction"]
        name = event["sites"][0] if len(event["sites"]) == 1 else f"{len(event['sites'])} sites"
        found.append(Cut(folder.name, name, forecast, event["measured"], event["measured_error"] or 0.0))
    return found


def place(value: float) -> float:
    """Where a value is on a logarithmic axis, from 0 to 1."""
    clipped = min(HIGH, max(LOW, value))
    return math.log(clipped / LOW) / math.log(HIGH / LOW)


def svg(cuts: list[Cut]) -> str:
    """Measured over forecast on logarithmic axes, with the lines of equality and of a factor of two."""
    names = list(dict.fromkeys(cut.run for cut in cuts))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + LEFT + 130} {SIZE + 50}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]

    def x(value: float) -> float:
        return LEFT + SIZE * place(value)

    def y(value: float) -> float:
        return 10 + SIZE * (1 - place(value))

    for power in range(round(math.log10(LOW)), round(math.log10(HIGH)) + 1):
        tick = 10.0**power
        parts.append(f'<path d="M{x(tick):.1f} 10V{SIZE + 10}M{LEFT} {y(tick):.1f}H{LEFT + SIZE}" stroke="#e2e8f0"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{SIZE + 26}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for factor, dash in ((1.0, "none"), (2.0, "4 3"), (0.5, "4 3")):
        low, high = max(LOW, LOW / factor), min(HIGH, HIGH / factor)
        line = f'x1="{x(low):.1f}" y1="{y(low * factor):.1f}" x2="{x(high):.1f}" y2="{y(high * factor):.1f}"'
        parts.append(f'<line {line} stroke="#4a5568" stroke-dasharray="{dash}"/>')
    for cut in cuts:
        colour = COLOURS[names.index(cut.run) % len(COLOURS)]
        fill = colour if cut.tells else "white"
        tip = f"{cut.run} {cut.sites}: forecast {cut.forecast:+.2g}, measured {cut.measured:+.2g}"
        dot = f'cx="{x(cut.forecast):.1f}" cy="{y(cut.measured):.1f}" r="4" fill="{fill}" stroke="{colour}"'
        parts.append(f"<circle {dot}><title>{tip}</title></circle>")
    for row, name in enumerate(names):
        parts.append(
            f'<circle cx="{LEFT + SIZE + 20}" cy="{24 + 20 * row}" r="4" fill="{COLOURS[row % len(COLOURS)]}"/>'
        )
        parts.append(f'<text x="{LEFT + SIZE + 30}" y="{28 + 20 * row}">{name}</text>')
    parts.append(f'<text x="{LEFT + SIZE / 2}" y="{SIZE + 44}" text-anchor="middle">forecast, nats per example</text>')
    parts.append(f'<text transform="translate(12 {SIZE / 2}) rotate(-90)" text-anchor="middle">measured</text></svg>')
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    cuts = [cut for run in args.runs for cut in read(run)]
    print("| run | sites | forecast | measured | ratio |\n|---|---|---|---|---|")
    for cut in cuts:
        ratio = f"{cut.measured / cut.forecast:.2f}" if cut.tells and cut.forecast > 0 else "-"
        print(f"| {cut.run} | {cut.sites} | {cut.forecast:+.2g} | {cut.measured:+.2g} +- {cut.error:.1g} | {ratio} |")
    telling = [cut for cut in cuts if cut.tells and cut.measured < 0.1]
    within = [cut for cut in telling if cut.forecast > 0 and 0.5 <= cut.measured / cut.forecast <= 2]
    print(f"\n{len(within)} of {len(telling)} telling cuts below 0.1 nats per example are within a factor of 2;")
    print(f"{len(cuts) - len([c for c in cuts if c.tells])} more are too small to be told from nothing")
    if args.svg:
        args.svg.write_text(svg(cuts) + "\n")


if __name__ == "__main__":
    main()
