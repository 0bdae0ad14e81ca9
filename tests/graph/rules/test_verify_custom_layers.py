"""Layers with a forward of their own: cut where trying shows that it is exact, left alone where it is not."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Pruner, trace
from tests.networks import check_cut, random_drop, scramble


class SameConv(nn.Conv2d):
    """As in many EfficientNets: padded by hand."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (1, 1, 1, 1))
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Scaled(nn.Linear):
    """Twice what it would be, and printed."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Centred(nn.Conv2d):
    """A filter that depends on all of its columns."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean(1, keepdim=True)
        return F.conv2d(x, weight, self.bias, padding=1)


class ByWidth(nn.Conv2d):
    """Scaled by its own width."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, padding=1) / self.in_channels


class Sorted(nn.Conv2d):
    """Outputs that meet each other."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(F.conv2d(x, self.weight, self.bias, padding=1), 1)[0]


def network() -> nn.Module:
    depthwise = SameConv(6, 12, 3, groups=6)
    layers = [SameConv(3, 6, 3), nn.BatchNorm2d(6), depthwise, nn.ReLU(), SameConv(12, 5, 3, bias=False), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), Scaled(5, 4), nn.ReLU(), Scaled(4, 2))


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_a_layer_that_only_pads_or_scales_is_cut(training: bool) -> None:
    torch.manual_seed(0)
    model = scramble(network()).train(training)
    x = torch.randn(3, 3, 6, 6, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == {"0": 6, "4": 5, "8": 4}
    assert all(graph.is_module(reader) for site in graph.sites for reader in site.consumers)
    check_cut(graph, random_drop(graph), x)
    assert len(Pruner(network(), torch.zeros(2, 3, 6, 6), dataset_size=10)) == 3


@pytest.mark.parametrize(("kind", "sites"), [(Centred, []), (ByWidth, ["0", "1.weight"]), (Sorted, ["0"])])
def test_a_layer_that_mixes_is_followed_inside(kind: type[nn.Conv2d], sites: list[str]) -> None:
    torch.manual_seed(0)
    model = scramble(nn.Sequential(nn.Conv2d(3, 6, 3), kind(6, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)))
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    graph = trace(model, x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [site.name for site in graph.sites] == sites
    check_cut(graph, random_drop(graph), x)


def test_a_parametrized_layer_with_a_forward_of_its_own_has_no_rule() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(super().forward(x), 1)[0]

    model = nn.Sequential(nn.utils.parametrizations.weight_norm(Doubled(4, 5)), nn.Linear(5, 2))
    graph = trace(model, torch.zeros(2, 4))
    assert graph.sites == []
