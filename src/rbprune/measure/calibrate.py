"""Measures what the layers of a network take on this device at a grid of widths: the table behind latency as a cost."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, trace
from rbprune.graph.latency_table import LatencyTable, LayerShape, NetworkCheck, Remainders
from rbprune.measure.device_steps import find_step, heaviest, remainders, sweep_widths
from rbprune.measure.latency import threads_set
from rbprune.measure.latency_fit import fit_rest
from rbprune.measure.layer_modules import MeasuredLayer, find_layers
from rbprune.measure.measuring import Measuring

EVEN, UNEVEN = (1.0, 0.75, 0.5, 0.35, 0.25), (0.8, 0.65, 0.5, 0.4, 0.3, 0.2)
"""Shares of its channels that the network keeps where the rest is fitted: in multiples of the step, and at random."""
CHECKED = ((0.6, None), (0.5, 11), (0.35, 12), (0.7, 13))
"""Networks that tell how good the table is: the share that is kept, and the seed of random widths."""
MOST_COMPILED = 8, 1
"""Of compiled networks so many are fitted and checked: each takes a minute to compile."""

Say = Callable[[str], None]


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
        for layer in layers:
            if layer.key not in shapes:
                shapes[layer.key] = _measure_shape(layer, step, how)
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
    return _fitted(table, graph, example, how, say)


def _measure_shape(layer: MeasuredLayer, step: int, how: Measuring) -> LayerShape:
    inputs, outputs = layer.widths(step, how.points)
    pairs = [(i, o) for i in inputs for o in outputs]
    calls = {pair: how.prepared(*layer.at(*pair)) for pair in pairs}
    times = how.times(calls)
    return LayerShape(
        kind=layer.kind,
        kernel=layer.kernel,
        positions=layer.positions,
        inputs=inputs,
        outputs=outputs,
        us=[[layer.calls * times[i, o] for o in outputs] for i in inputs],
        depthwise=layer.depthwise,
    )


def _fitted(table: LatencyTable, graph: ChannelGraph, example: Tensor, how: Measuring, say: Say) -> LatencyTable:
    """The table with the rest fitted to whole networks, and checked on others."""
    even, uneven = ([(share, None) for share in EVEN], [(share, seed) for seed, share in enumerate(UNEVEN, start=1)])
    fitted = [pair for both in zip_longest(even, uneven) for pair in both if pair is not None]
    checked = list(CHECKED)
    if how.backend == "compile":
        fitted, checked = fitted[: MOST_COMPILED[0]], checked[: MOST_COMPILED[1]]
    names = [(*pair, pair in fitted) for pair in (*fitted, *checked)]
    x = example[:1].expand(how.batch, *example.shape[1:]).contiguous()
    calls, counts = {}, {}
    say(f"measuring the whole network at {len(names)} widths")
    for share, seed, is_fitted in names:
        name = _named(share, seed, table.step)
        counts[name] = removed_channels(graph, share, table.step, seed)
        calls[name, is_fitted] = _whole(graph, example, x, counts[name], how)
    with threads_set(how.threads), torch.inference_mode():
        measured = how.times(calls)
    rows = [(table.features(graph, counts[name]), us) for (name, is_fitted), us in measured.items() if is_fitted]
    table = table.changed(rest=fit_rest([row for row, _ in rows], [us for _, us in rows]))
    checks = [
        NetworkCheck(name=name, fitted=is_fitted, measured=us, predicted=table.microseconds(graph, counts[name]))
        for (name, is_fitted), us in measured.items()
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


def _named(share: float, seed: int | None, step: int) -> str:
    if share == 1:
        return "dense"
    how = f"multiples of {step}" if seed is None else f"random, seed {seed}"
    return f"{share:.0%} of the channels, {how}"


def removed_channels(graph: ChannelGraph, share: float, step: int, seed: int | None) -> dict[str, int]:
    """How many channels of each site go so that a share of them is kept: in multiples of the step or, with a seed,
    random numbers around it, whatever they are."""
    draw, found = random.Random(seed), {}
    for site in graph.sites:
        if seed is None:
            kept = site.channels if share == 1 else max(step, round(share * site.channels / step) * step)
        else:
            kept = round(site.channels * min(1.0, share * draw.uniform(0.4, 1.6)))
        found[site.name] = site.channels - min(site.channels, max(1, kept))
    return found


def told(table: LatencyTable) -> Iterator[str]:
    """How good a table is, a line for each network that was measured."""
    for check in table.checks:
        what = "fitted" if check.fitted else "checked"
        off = check.predicted / check.measured - 1
        yield f"{what}: {check.name}: measured {check.measured:.0f} us, foretold {check.predicted:.0f} us ({off:+.1%})"
