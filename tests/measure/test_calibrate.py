"""A table for a small network, measured here."""

from __future__ import annotations

import pytest
import torch

from rbprune import trace
from rbprune.errors import ConfigError
from rbprune.graph.cost import LATENCY
from rbprune.measure.calibrate import CHECKED, FITTED, Narrowed, calibrate, removed_channels, told, uneven_pairs
from rbprune.measure.layer_modules import find_layers
from rbprune.measure.measuring import Measuring
from tests.networks import tiny_cnn

X = torch.zeros(2, 1, 8, 8)


@pytest.mark.parametrize("backend", ["eager", "onnxruntime"])
def test_a_table_of_this_network_on_this_device(backend: str) -> None:
    model = tiny_cnn(40)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    said: list[str] = []
    how = Measuring(batch=2, backend=backend, device="cpu", points=3, rounds=3, clock="cpu")  # type: ignore[arg-type]
    table = calibrate(model, X, "tiny", how, said.append)
    assert set(table.layers) == {"0", "4", "8", "10"} and table.on.backend == backend and table.on.batch == 2
    assert ("onnxruntime" in table.on.versions) == (backend == "onnxruntime")
    wanted = {found.named(table.step) for found in (*FITTED, *CHECKED)}  # fewer where the device has no steps
    assert said and len(list(told(table))) == len(table.checks) and {check.name for check in table.checks} == wanted
    assert model.training and all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    graph = trace(model, X)
    table.check(graph)
    graph.latency = table
    dense = next(check for check in table.checks if check.name == "dense")
    assert LATENCY.total(graph) == pytest.approx(dense.predicted)
    assert 0.5 < dense.predicted / dense.measured < 2
    assert LATENCY.without(graph, {"4": 60}) < LATENCY.total(graph)


def test_how_many_channels_go() -> None:
    graph = trace(tiny_cnn(20), X)
    assert removed_channels(graph, Narrowed(1.0), 8) == {"0": 0, "4": 0, "8": 0}
    assert removed_channels(graph, Narrowed(0.5), 8) == {"0": 12, "4": 24, "8": 4}, "multiples of 8 stay"
    drawn = removed_channels(graph, Narrowed(0.5, seed=1), 8)
    assert (
        drawn == removed_channels(graph, Narrowed(0.5, seed=1), 8) != removed_channels(graph, Narrowed(0.5, seed=2), 8)
    )
    assert all(0 <= count < graph[name].channels for name, count in drawn.items())


def test_narrow_networks_are_multiples_of_a_part_of_the_step() -> None:
    graph = trace(tiny_cnn(40), X)
    assert removed_channels(graph, Narrowed(0.25, parts=2), 16) == {"0": 32, "4": 64, "8": 4}
    assert Narrowed(0.25, parts=2).named(16) == "25% of the channels, multiples of 8"
    assert Narrowed(0.5, parts=2).named(1) == Narrowed(0.5).named(1), "a device without steps needs no finer ones"


def test_uneven_widths_are_tried_in_layers_of_every_shape() -> None:
    layers = find_layers(trace(tiny_cnn(40), X), X)
    for layer in layers:
        pairs = uneven_pairs(layer, 16)
        assert pairs == uneven_pairs(layer, 16) and pairs, "the same ones each time"
        for inputs, outputs in pairs:
            assert inputs % 16 or inputs == layer.inputs
            assert outputs % 16 or outputs == layer.outputs
            assert (inputs, outputs) != (layer.inputs, layer.outputs)


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nothing' has no convolution or linear layer"):
        calibrate(torch.nn.Sequential(torch.nn.ReLU()), X, "nothing", Measuring(device="cpu"))
