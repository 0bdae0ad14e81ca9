"""What layers lose with channels and branches."""

from __future__ import annotations

import torch

from rbprune import trace
from rbprune.graph.cost import MACS
from rbprune.graph.layer_shares import channels_within, layers_without
from tests.graph.residual_networks import FORMS, residual_net


def test_shares_of_channels_and_branches() -> None:
    graph = trace(residual_net(FORMS["relu after the sum"][0]), torch.zeros(1, 3, 8, 8))
    assert dict(graph.channel_shares(graph["1.1.conv1"])) == {"1.1.conv1": 1 / 8, "1.1.bn1": 1 / 8, "1.1.conv2": 1 / 8}
    assert dict(graph.channel_shares(graph["1.1"])) == {"1.1.conv1": 1.0, "1.1.conv2": 1.0}
    assert channels_within(graph, graph["1.1"]) == 8, "those of its one site"
    assert channels_within(graph, graph["1.1.conv1"]) == 1
    shares = graph.remaining_shares({"1.1": 1, "1.1.conv1": 2, "1.0.conv1": 2})
    assert shares["1.1.conv1"] == shares["1.1.conv2"] == 0.0
    assert shares["1.0.conv1"] == shares["1.0.conv2"] == 0.75
    assert graph.remaining_shares({"1.1": 0}) == {}
    left = {layer.name: layer.macs for layer in layers_without(graph, {"1.1": 1, "1.1.conv1": 2})}
    assert left["1.1.conv1"] == left["1.1.conv2"] == 0
    assert sum(left.values()) == MACS.total(graph) - MACS.per_channel(graph, graph["1.1"])
