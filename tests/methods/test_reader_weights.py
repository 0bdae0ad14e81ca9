"""Where a reader has the weights of a site's channels, and how they are written."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.graph import trace
from rbprune.methods.reader_weights import weight_columns, write_weights
from tests.networks import tiny_cnn


@pytest.mark.parametrize(("site", "reader"), [("0", "4"), ("4", "8"), ("8", "10")])
def test_without_its_columns_a_channel_is_not_read(site: str, reader: str) -> None:
    torch.manual_seed(0)
    model, x = tiny_cnn().eval(), torch.randn(3, 1, 8, 8)
    graph = trace(model, x[:1])
    (part,) = (part for part in graph[site].parts if part.role == "in")
    assert part.owner == reader
    columns = weight_columns(graph, graph[site], part)
    layer = graph.module(reader)
    assert columns.flatten().sort().values.tolist() == list(range(layer.weight[0].numel()))  # type: ignore[operator, index, union-attr, arg-type]
    with torch.no_grad(), graph.mask({site: [2, 5]}):
        masked = model(x)
    gone = columns[[2, 5]].flatten()
    write_weights(layer, gone, torch.zeros(len(layer.weight), len(gone)))  # type: ignore[arg-type]
    with torch.no_grad():
        torch.testing.assert_close(model(x), masked)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_values_are_written_in_either_memory_and_a_bias_only_where_there_is_one(memory: torch.memory_format) -> None:
    for bias in (True, False):
        layer = nn.Conv2d(3, 2, 2, bias=bias).to(memory_format=memory)
        parameter, before = layer.weight, layer.weight.detach().clone()
        write_weights(layer, torch.tensor([4, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0]))
        assert layer.weight is parameter
        assert layer.weight[:, 1, 0, 0].tolist() == [1, 3] and layer.weight[:, 0, 0, 0].tolist() == [2, 4]
        assert torch.equal(layer.weight.flatten(1)[:, 5:], before.flatten(1)[:, 5:])
        assert layer.bias is None or layer.bias.tolist() == [5, 6]
