"""Tables of latencies: interpolation by hand, steps, files, and networks that are others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from rbprune import models, trace
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import LATENCY, known_costs
from rbprune.graph.latency_table import DeviceSettings, Features, LatencyTable, LayerShape, Rest, layer_widths
from tests.networks import tiny_cnn

ON = DeviceSettings(device="cpu", processor="a test", backend="eager", batch=1, threads=1)


def table_of(graph: ChannelGraph, step: int = 1, **changes: object) -> LatencyTable:
    """A table in which every layer takes inputs x outputs x places nanoseconds, at a few widths of its own."""
    shapes, layers = {}, {}
    for layer in graph.layers():
        inputs, outputs = layer_widths(graph, {})[layer.name]
        positions = layer.macs // layer.params
        kernel = list(graph.module(layer.name).weight.shape[2:])  # type: ignore[union-attr, operator]
        ins, outs = ([1, width] if width > 1 else [1] for width in (inputs, outputs))
        us = [[i * o * positions / 1000 for o in outs] for i in ins]
        layers[layer.name] = layer.name
        shapes[layer.name] = LayerShape(
            kind=layer.kind, kernel=kernel, positions=positions, inputs=ins, outputs=outs, us=us
        )
    given = {"network": "tiny", "input": [1, 8, 8], "on": ON, "step": step, "layers": layers, "shapes": shapes}
    return LatencyTable(**{**given, **changes})


def traced(channels: int = 8) -> ChannelGraph:
    return trace(tiny_cnn(channels), torch.zeros(1, 1, 8, 8))


def test_between_widths_it_is_bilinear_and_exact_for_a_bilinear_device() -> None:
    graph = traced()
    graph.latency = table_of(graph)
    counts = {"0": 3, "4": 5, "8": 7}

    def by_hand(a: int, b: int, c: int) -> float:
        return (1 * a * 64 + a * b * 16 + b * 16 * c + c * 3) / 1000

    assert LATENCY.total(graph) == pytest.approx(by_hand(8, 16, 12))
    assert LATENCY.without(graph, counts) == pytest.approx(by_hand(5, 11, 5))
    site = graph["4"]
    assert LATENCY.per_channel(graph, site) == pytest.approx((by_hand(8, 16, 12) - by_hand(8, 8, 12)) / 8)
    graph.remove({name: range(count) for name, count in counts.items()})
    assert LATENCY.total(graph) == pytest.approx(by_hand(5, 11, 5)), "of the network that is really cut"
    assert list(known_costs(graph)) == ["macs", "params", "latency"]


def test_widths_are_rounded_up_to_the_step_and_remainders_have_factors() -> None:
    shape = LayerShape(
        kind="Linear", kernel=[], positions=1, inputs=[4, 8, 12], outputs=[4, 8], us=[[1, 2], [3, 4], [5, 8]]
    )
    table = LatencyTable(
        network="n",
        input=[12],
        on=ON,
        step=4,
        layers={"a": "s"},
        shapes={"s": shape},
        remainders={"Linear": {"inputs": [1, 1, 1, 1.5], "outputs": [1, 2, 1, 1]}},
    )
    assert table.of_layer("a", 8, 8) == 4
    assert table.of_layer("a", 5, 8) == table.of_layer("a", 6, 8) == 4, "as 8 inputs"
    assert table.of_layer("a", 7, 8) == 4 * 1.5
    assert table.of_layer("a", 11, 5) == 8 * 1.5 * 2
    assert table.of_layer("a", 12, 8) == 8 and table.of_layer("a", 1, 1) == 1 * 2
    own = table.changed(shapes={"s": shape.changed(uneven=9.0)})
    assert own.of_layer("a", 8, 8) == 4 and own.of_layer("a", 12, 8) == 8, "even widths, and the whole one, as before"
    assert own.of_layer("a", 7, 8) == 4 * 1.5 * 3, "one of two widths is uneven: half of the factor's powers"
    assert own.of_layer("a", 11, 5) == 8 * 1.5 * 2 * 9
    own = table.changed(shapes={"s": shape.changed(uneven=9.0, uneven_power=0.5)})
    assert own.of_layer("a", 11, 5) == pytest.approx(8 * 1.5 * 2 * 9 * (11 * 5 / (12 * 8)) ** 0.5)


def test_a_depthwise_layer_has_one_width() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 2, 1))
    graph = trace(model, torch.zeros(1, 3, 6, 6))
    assert layer_widths(graph, {"0": 3}) == {"0": (3, 5), "1": (5, 5), "2": (5, 2)}


def test_the_rest_counts_elements_uneven_widths_and_weights_beyond_the_cache() -> None:
    rest = Rest(scale=2, per_element=0.5, per_uneven=0.25, per_weight=3, cache=10, constant=-1)
    assert rest.microseconds(Features(100, 8, 4, 12)) == 200 + 4 + 1 + 6 - 1
    assert rest.microseconds(Features(100, 8, 4, 9)) == 200 + 4 + 1 - 1
    graph = traced()
    table = table_of(graph, step=4)
    even, uneven = table.features(graph, {"4": 4}), table.features(graph, {"4": 5})
    assert (even.uneven, uneven.uneven) == (0, 11 * 16)
    assert even.elements == 8 * 64 + 12 * 16 + 12 + 3
    assert even.weights == 8 * 9 + 8 * 12 * 9 + 12 * 16 * 12 + 12 * 3


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    table = table_of(traced())
    assert LatencyTable.load(table.save(tmp_path / "device.json")) == table


def test_a_file_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    with pytest.raises(ConfigError, match=r"no table of latencies at .*device.json.*rbprune calibrate"):
        LatencyTable.load(path)
    table_of(traced()).save(path)
    whole = path.read_text()

    def refused(text: str, why: str) -> None:
        path.write_text(text)
        with pytest.raises(
            ConfigError, match=f"device.json' is no table of latencies that can be read.*{why}.*calibrate"
        ):
            LatencyTable.load(path)

    refused(whole[: len(whole) // 2], "Invalid JSON")
    refused("", "Invalid JSON")
    document = json.loads(whole)
    refused(json.dumps({**document, "version": 2}), "version")
    refused(json.dumps({**document, "colour": "red"}), "colour")
    refused(json.dumps({**document, "layers": {"0": "elsewhere"}}), "elsewhere")
    shape = document["shapes"]["4"]
    for change, why in (
        ({"us": [[1.0]]}, "rows of"),
        ({"inputs": [8, 1]}, "must rise"),
        ({"us": [[-1.0] * 2] * 2}, "positive"),
    ):
        shapes = {**document["shapes"], "4": {**shape, **change}}
        refused(json.dumps({**document, "shapes": shapes}), why)
    refused(
        json.dumps({**document, "remainders": {"conv": {"inputs": [1, 1], "outputs": [1, 1]}}}), "must be 1 factors"
    )


def test_another_network_is_refused_by_name() -> None:
    table = table_of(traced())
    table.check(traced())
    narrower = traced()
    narrower.remove({"4": [0, 1]})
    table.check(narrower)
    with pytest.raises(
        ConfigError, match=r"another network, 'tiny' at 1x8x8: its layer '0' .* has 1 inputs and 12 outputs here"
    ):
        table.check(traced(12))
    with pytest.raises(ConfigError, match=r"its layer '0' .* is applied at 144 places of an example, not 64"):
        table.check(trace(tiny_cnn(8)[:7], torch.zeros(1, 1, 12, 12)))
    lenet = trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28))
    with pytest.raises(ConfigError, match=r"its layer '0' .* is not in this one; .*rbprune calibrate"):
        table.check(lenet)


def test_a_branch_takes_what_its_layers_take() -> None:
    model = models.build("resnet20-cifar")
    graph = trace(model, torch.zeros(1, 3, 32, 32))
    graph.latency = table_of(graph)
    branch = graph.branches["layer1.1"]
    saved = LATENCY.per_channel(graph, branch)
    assert saved == pytest.approx(2 * 16 * 16 * 1024 / 1000)
    before = LATENCY.total(graph)
    graph.remove_blocks(["layer1.1"])
    assert before - LATENCY.total(graph) == pytest.approx(saved)
