"""The record of a node: one for each, made when it is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from rbprune.graph.node_info import NodeInfo, info
from rbprune.graph.tracing.shapes import note_shapes
from rbprune.utils.inputs import arguments
from tests.graph.operations import Net, conv


def test_every_node_has_one_record_of_its_own() -> None:
    graph = fx.Graph()
    first, second = graph.placeholder("first"), graph.placeholder("second")
    assert info(first) == NodeInfo()
    info(first).source_line = "net.py:3"
    assert info(first).source_line == "net.py:3"
    assert info(second).source_line is None
    assert [key for key in first.meta if isinstance(first.meta[key], NodeInfo)] == ["rbprune"]


def test_shapes_and_layers_are_noted_in_it() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv(3, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x)

    model = Net(lambda n, x: n.inner(x), inner=Inner())
    graph = fx.Graph()
    x = graph.placeholder("x")
    called = graph.call_module("inner", (x,))
    graph.output(called)
    note_shapes(model, graph, arguments(torch.zeros(2, 3, 5, 5)), {})
    assert info(called).result.shape == (2, 6, 5, 5)
    assert info(called).result.is_meta
    assert info(called).layers_inside == [(model.inner.conv, (2, 6, 5, 5))]
