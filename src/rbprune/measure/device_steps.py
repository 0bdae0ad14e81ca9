"""The steps of a device: it computes channels in blocks, and some widths take longer than the next larger one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rbprune.measure.layer_modules import MeasuredLayer
from rbprune.measure.measuring import Measuring

STEPS = (1, 2, 4, 8, 16, 32)
"""Steps that a device may have."""
FREE = 0.25
"""To round widths up to a step is free where it takes no more than this part of what it would if every channel took the
same time, on average."""
SWEEP = 32
"""So many neighbouring widths show a device's steps."""


def find_step(sweeps: Sequence[Mapping[int, float]]) -> int:
    """The largest step to which widths can be rounded up and hardly take longer, on average over some sweeps of widths.

    A larger step is tried from multiples of the one found so far: that odd widths are slow pays for no larger one.

    >>> find_step([{width: 10.0 * -(-width // 8) for width in range(33, 65)}])
    8
    """
    found = 1
    for step in STEPS:
        pairs = [
            (sweep, width) for sweep in sweeps for width in sweep if not width % found and _up(width, step) in sweep
        ]
        taken = sum(max(0.0, sweep[_up(width, step)] / sweep[width] - 1) for sweep, width in pairs)
        in_proportion = sum(_up(width, step) / width - 1 for _, width in pairs)
        if pairs and taken <= FREE * in_proportion:
            found = step
    return found


def remainders(sweep: Mapping[int, float], step: int) -> list[float]:
    """For every remainder of a width by the step, its time over that of the next multiple, the geometric mean.

    >>> remainders({15: 2.0, 16: 1.0, 31: 8.0, 32: 4.0}, 16)[-1]
    2.0
    """
    ratios: list[list[float]] = [[] for _ in range(step)]
    for width, value in sweep.items():
        if _up(width, step) in sweep and width % step:
            ratios[width % step].append(math.log(value / sweep[_up(width, step)]))
    return [math.exp(sum(own) / len(own)) if own else 1.0 for own in ratios]


def _up(width: int, step: int) -> int:
    return math.ceil(width / step) * step


def heaviest(layers: Sequence[MeasuredLayer]) -> dict[str, MeasuredLayer]:
    """Of every kind the layer with the most computation among those wide enough to show steps; else any."""
    found: dict[str, MeasuredLayer] = {}
    for layer in sorted(layers, key=_work):
        found[layer.kind] = layer
    return found


def _work(layer: MeasuredLayer) -> tuple[bool, float]:
    wide = min(layer.inputs, layer.outputs) >= 2 * SWEEP
    return wide, layer.inputs * layer.outputs * layer.positions


def sweep_widths(layer: MeasuredLayer, how: Measuring) -> dict[str, dict[int, float]]:
    """Times of neighbouring widths, of inputs and of outputs; nothing where the layer is too narrow for that."""
    found: dict[str, dict[int, float]] = {"inputs": {}, "outputs": {}}
    if layer.groups > 1 and not layer.depthwise:
        return found
    for axis in ("outputs",) if layer.depthwise else ("inputs", "outputs"):
        widest = getattr(layer, axis)
        if widest >= SWEEP:
            first = SWEEP if widest >= 2 * SWEEP else 0
            widths = range(first + 1, first + SWEEP + 1)
            pairs = {w: (w, layer.outputs) if axis == "inputs" else (layer.inputs, w) for w in widths}
            calls = {width: how.prepared(*layer.at(*pair)) for width, pair in pairs.items()}
            found[axis] = how.times(calls)
    return found
