"""Torch-Pruning as an independent witness: where both support a network, both leave the same tensors."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from rbprune import models, trace
from tests.networks import random_drop

tp = pytest.importorskip("torch_pruning")

NETWORKS = {
    "vgg16-cifar": 32,
    "torchvision:resnet18": 48,
    "torchvision:mobilenet_v2": 48,
    "torchvision:squeezenet1_1": 64,
    "torchvision:densenet121": 48,
}


def cut_by_peer(model: nn.Module, x: torch.Tensor, owner: str, channels: list[int]) -> None:
    layer = model.get_submodule(owner)
    peer = tp.DependencyGraph().build_dependency(model, example_inputs=x)
    cut = tp.prune_linear_out_channels if isinstance(layer, nn.Linear) else tp.prune_conv_out_channels
    peer.get_pruning_group(layer, cut, idxs=channels).prune()


@pytest.mark.parametrize(("name", "size"), NETWORKS.items())
def test_both_leave_the_same_network(name: str, size: int) -> None:
    torch.manual_seed(0)
    model = models.build(name).eval()
    other = copy.deepcopy(model)
    x = torch.randn(1, 3, size, size)
    graph = trace(model, x)
    drop = random_drop(graph)
    chosen = [name for name in drop if "#" not in name][:: max(1, len(drop) // 5)]
    for site in chosen:
        out = next(part for part in graph[site].parts if part.role == "out")
        cut_by_peer(other, x, out.owner, out.positions[drop[site]].flatten().tolist())
    graph.remove({site: drop[site] for site in chosen})
    theirs = other.state_dict()
    for key, value in model.state_dict().items():
        assert torch.equal(value, theirs[key]), key
    with torch.no_grad():
        torch.testing.assert_close(model(x), other.eval()(x))


def test_a_channel_shuffle_where_the_peer_is_wrong_is_exact_here() -> None:
    class Shuffled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x)
            n, c, h, w = y.shape
            return self.b(y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w))

    torch.manual_seed(0)
    model = Shuffled().double().eval()
    other = copy.deepcopy(model)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    graph = trace(model, x)
    drop = {"a": [1]}
    out = next(part for part in graph["a"].parts if part.role == "out")
    gone = out.positions[1].tolist()
    with torch.no_grad():
        with graph.mask(drop):
            masked = model(x)
        graph.remove(drop)
        torch.testing.assert_close(model(x), masked, rtol=1e-12, atol=1e-12)
    cut_by_peer(other, x, "a", gone)
    with torch.no_grad():
        assert not torch.allclose(other(x), masked)


def test_zero_padded_shortcuts_where_the_peer_is_wrong_are_exact_here() -> None:
    torch.manual_seed(0)
    model = models.build("resnet20-cifar").double().eval()
    other = copy.deepcopy(model)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    graph = trace(model, x)
    with torch.no_grad():
        with graph.mask({"conv1": [2, 5]}):
            masked = model(x)
        graph.remove({"conv1": [2, 5]})
        torch.testing.assert_close(model(x), masked, rtol=1e-9, atol=1e-9)
    cut_by_peer(other, x, "conv1", [2, 5])
    with torch.no_grad():
        assert not torch.allclose(other(x), masked)
