"""Measures what the layers of a network take on this device at a grid of widths: the table behind latency as a cost."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, trace
from rbprune.graph.latency_table import LatencyTable, LayerShape, NetworkCheck, Remainders
from rbprune.measure.device_steps import find_step, heaviest, remainders, sweep_widths
from rbprune.measure.latency import threads_set
from rbprune.measure.latency_fit import fit_power, fit_rest
from rbprune.measure.layer_modules import MeasuredLayer, find_layers
from rbprune.measure.measuring import Measuring

PROBES = 8
"""Pairs of uneven widths at which a layer of every shape is measured besides its grid."""
MOST_COMPILED = 8, 1
"""Of compiled networks so many are fitted and checked: each takes a minute to compile."""

Say = Callable[[str], None]


class Narrowed(NamedTuple):
    """Widths of a network: the share of its channels that is kept, and in which numbers."""

    share: float
    seed: int | None = None
    """Of random widths; without one, they are multiples."""
    parts: int = 1
    """Multiples of the step divided by this."""

    def unit(self, step: int) -> int:
        """What widths are multiples of."""
        return max(1, step // self.parts)

    def named(self, step: int) -> str:
        """For the table of checks."""
        if self.share == 1:
            return "dense"
        how = f"multiples of {self.unit(step)}" if self.seed is None else f"random, seed {self.seed}"
        return f"{self.share:.0%} of the channels, {how}"


FITTED = (
    Narrowed(1.0),
    Narrowed(0.8, seed=1),
    Narrowed(0.75),
    Narrowed(0.65, seed=2),
    Narrowed(0.5),
    Narrowed(0.5, seed=3),
    Narrowed(0.35),
    Narrowed(0.4, seed=4),
    Narrowed(0.25),
    Narrowed(0.3, seed=5),
    Narrowed(0.5, parts=2),
    Narrowed(0.2, seed=6),
    Narrowed(0.25, parts=2),
    Narrowed(0.12, seed=7),
)
"""What the rest is fitted to."""
CHECKED = (Narrowed(0.6), Narrowed(0.5, seed=11), Narrowed(0.35, seed=12), Narrowed(0.7, seed=13))
"""Networks that tell how good the table is."""


def calibrate(
    model: nn.Module, example: Tensor, network: str, how: Measuring, say: Say = lambda _: None
) -> LatencyTable:
    """Measure the table of a network; ``example`` is an input for it, of which one example is used.

    The model stays as it is: copies are cut and measured.
    """
    device = how.check()
    model = copy.deepcopy(model).eval()
    graph = trace(model, example)
    with threads_set(how.threads), torch.inference_mode():
        layers = find_layers(graph, example[:1].expand(how.batch, *example.shape[1:]))
        if not layers:
            raise ConfigError(f"{network!r} has no convolution or linear layer that could be measured")
        kinds = heaviest(layers)
        say(f"{len(layers)} layers, {len({layer.key for layer in layers})} shapes; looking for the device's steps")
        sweeps = {kind: sweep_widths(layer, how) for kind, layer in kinds.items()}
        step = find_step([sweep for pair in sweeps.values() for sweep in pair.values() if sweep])
        shapes: dict[str, LayerShape] = {}
        probes: dict[str, Probes] = {}
        for layer in layers:
            if layer.key not in shapes:
                shapes[layer.key], probes[layer.name] = _measure_shape(layer, step, how)
                say(f"{layer.key}: {shapes[layer.key].us[-1][-1]:.0f} us")
    table = LatencyTable(
        network=network,
        input=list(example.shape[1:]),
        on=how.described(device),
        step=step,
        layers={layer.name: layer.key for layer in layers},
        shapes=shapes,
        remainders={
            kind: Remainders(inputs=remainders(pair["inputs"], step), outputs=remainders(pair["outputs"], step))
            for kind, pair in sweeps.items()
        },
    )
    return _fitted(_with_uneven(table, probes), graph, example, how, say)


Probes = dict[tuple[int, int], float]
"""Microseconds of one layer at pairs of uneven widths."""


def _measure_shape(layer: MeasuredLayer, step: int, how: Measuring) -> tuple[LayerShape, Probes]:
    """The grid of one shape, and what it takes at some uneven widths."""
    inputs, outputs = layer.widths(step, how.points)
    probed = [] if layer.groups > 1 and not layer.depthwise else uneven_pairs(layer, step)
    pairs = [*((i, o) for i in inputs for o in outputs), *probed]
    calls = {pair: how.prepared(*layer.at(*pair)) for pair in pairs}
    times = how.times(calls)
    shape = LayerShape(
        kind=layer.kind,
        kernel=layer.kernel,
        positions=layer.positions,
        inputs=inputs,
        outputs=outputs,
        us=[[layer.calls * times[i, o] for o in outputs] for i in inputs],
        depthwise=layer.depthwise,
    )
    return shape, {pair: layer.calls * times[pair] for pair in probed}


def uneven_pairs(layer: MeasuredLayer, step: int) -> list[tuple[int, int]]:
    """Random widths of inputs and outputs that are no multiples of the step; none where the layer has none."""
    draw = random.Random(layer.key)
    axes = [
        [width for width in range(max(1, whole // 8), whole) if width % step] or [whole]
        for whole in (layer.inputs, layer.outputs)
    ]
    if layer.depthwise:
        axes[0] = [layer.inputs]
    drawn = [tuple(draw.choice(axis) for axis in axes) for _ in range(PROBES)]
    return [(i, o) for i, o in dict.fromkeys(drawn) if (i, o) != (layer.inputs, layer.outputs)]


def _with_uneven(table: LatencyTable, probes: Mapping[str, Probes]) -> LatencyTable:
    """The table with what uneven widths take in layers of each shape, beside what the factors of their kind say.

    How much longer an uneven width takes depends on more than the kind of a layer: a library computes such widths in
    another way, which is cheap where there is little to compute.
    """
    shapes = dict(table.shapes)
    for name, found in probes.items():
        if found:
            key = table.layers[name]
            whole = shapes[key].inputs[-1] * shapes[key].outputs[-1]
            ratios = [us / table.of_layer(name, *pair) for pair, us in found.items()]
            factor, power = fit_power([i * o / whole for i, o in found], ratios)
            shapes[key] = shapes[key].changed(uneven=factor, uneven_power=power)
    return table.changed(shapes=shapes)


def _fitted(table: LatencyTable, graph: ChannelGraph, example: Tensor, how: Measuring, say: Say) -> LatencyTable:
    """The table with the rest fitted to whole networks, and checked on others."""
    most = MOST_COMPILED if how.backend == "compile" else (len(FITTED), len(CHECKED))
    x = example[:1].expand(how.batch, *example.shape[1:]).contiguous()
    calls, counts = {}, {}
    networks = {found.named(table.step): found for found in (*FITTED[: most[0]], *CHECKED[: most[1]])}
    say(f"measuring the whole network at {len(networks)} widths")
    for name, narrowed in networks.items():
        counts[name] = removed_channels(graph, narrowed, table.step)
        calls[name] = _whole(graph, example, x, counts[name], how)
    with threads_set(how.threads), torch.inference_mode():
        measured = how.times(calls)
    rows = [(table.features(graph, counts[name]), us) for name, us in measured.items() if networks[name] in FITTED]
    table = table.changed(rest=fit_rest([row for row, _ in rows], [us for _, us in rows]))
    checks = [
        NetworkCheck(
            name=name,
            fitted=networks[name] in FITTED,
            measured=us,
            predicted=table.microseconds(graph, counts[name]),
        )
        for name, us in measured.items()
    ]
    return table.changed(checks=checks)


def _whole(
    graph: ChannelGraph, example: Tensor, x: Tensor, counts: Mapping[str, int], how: Measuring
) -> Callable[[], Any]:
    """A call of a copy of the whole network without these channels."""
    model = copy.deepcopy(graph.model)
    trace(model, example).remove({name: range(count) for name, count in counts.items()})
    with threads_set(how.threads), torch.inference_mode():
        return how.prepared(model, x, whole=True)


def removed_channels(graph: ChannelGraph, narrowed: Narrowed, step: int) -> dict[str, int]:
    """How many channels of each site go so that a share of them is kept: in multiples or, with a seed, random numbers
    around it, whatever they are."""
    draw, unit, found = random.Random(narrowed.seed), narrowed.unit(step), {}
    for site in graph.sites:
        if narrowed.share == 1:
            kept = site.channels
        elif narrowed.seed is None:
            kept = max(unit, round(narrowed.share * site.channels / unit) * unit)
        else:
            kept = round(site.channels * min(1.0, narrowed.share * draw.uniform(0.4, 1.6)))
        found[site.name] = site.channels - min(site.channels, max(1, kept))
    return found


def told(table: LatencyTable) -> Iterator[str]:
    """How good a table is, a line for each network that was measured."""
    for check in table.checks:
        what = "fitted" if check.fitted else "checked"
        off = check.predicted / check.measured - 1
        yield f"{what}: {check.name}: measured {check.measured:.0f} us, foretold {check.predicted:.0f} us ({off:+.1%})"
