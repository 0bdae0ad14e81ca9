"""Rules for layers of timm, on stand-ins of the same names, so that they are tested where timm is not installed."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import apply_plan, trace
from tests.networks import check_cut, random_drop, scramble


class Conv2dSame(nn.Conv2d):
    """Padded by hand."""

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(F.pad(x, (1, 1, 1, 1)), self.weight, self.bias)


class ScaledStdConv2d(nn.Conv2d):
    """Every filter is standardised over its inputs and multiplied by a gain."""

    def __init__(self, *args: int, **options: int) -> None:
        super().__init__(*args, **options)
        self.gain = nn.Parameter(torch.rand(self.out_channels, 1, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        return self._conv_forward(x, (self.weight - mean) / deviation * self.gain, self.bias)


class BatchNormAct2d(nn.BatchNorm2d):
    """Normalisation, dropout and activation in one."""

    def __init__(self, channels: int, act: nn.Module) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class GroupNormAct(nn.GroupNorm):
    """Normalisation in groups and activation in one."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__(groups, channels)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class GroupNorm(nn.GroupNorm):
    """Normalisation in groups, by the function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class BlurPool2d(nn.Module):
    """A fixed filter for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.register_buffer("filt", torch.rand(1, 1, 3, 3).repeat(channels, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.filt, stride=2, groups=self.channels)


class Swish(nn.Module):
    """An activation of timm's own."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.sigmoid()


for stand_in in (Conv2dSame, ScaledStdConv2d, BatchNormAct2d, GroupNormAct, GroupNorm, BlurPool2d, Swish):
    stand_in.__module__ = "timm.layers.stand_in"

MIDDLES = {
    "same": (lambda: [Conv2dSame(6, 8, 3), Swish(), nn.Conv2d(8, 6, 1)], {"0": 6, "1": 8, "3": 6}),
    "depthwise same": (lambda: [Conv2dSame(6, 6, 3, groups=6)], {"0": 6}),
    "standardised": (lambda: [ScaledStdConv2d(6, 8, 3), nn.Conv2d(8, 6, 1)], {"1": 8, "2": 6}),
    "depthwise standardised": (lambda: [ScaledStdConv2d(6, 6, 3, groups=6)], {"0": 6}),
    "norm and activation": (lambda: [BatchNormAct2d(6, Swish())], {"0": 6}),
    "groups and activation": (lambda: [GroupNormAct(3, 6)], {"0": 3}),
    "groups": (lambda: [GroupNorm(3, 6)], {"0": 3}),
    "blur": (lambda: [BlurPool2d(6)], {"0": 6}),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", MIDDLES)
def test_masked_equals_removed(name: str, training: bool) -> None:
    middle, sites = MIDDLES[name]
    torch.manual_seed(1)
    model = scramble(nn.Sequential(nn.Conv2d(3, 6, 3), *middle(), nn.Conv2d(6, 2, 1))).train(training)
    fresh = copy.deepcopy(model)
    x = torch.randn(3, 3, 9, 9, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == sites
    plan = check_cut(graph, random_drop(graph), x)
    replayed = apply_plan(fresh, plan)
    for module, twin in zip(model.modules(), replayed.modules(), strict=True):
        widths = ("channels", "in_channels", "out_channels", "groups", "num_features", "num_channels", "num_groups")
        assert [getattr(module, width, None) for width in widths] == [getattr(twin, width, None) for width in widths]
    if name == "blur":
        assert model[1].channels == len(model[1].filt) == graph["0"].channels


def test_an_activation_without_a_rule_inside_a_norm_freezes_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), BatchNormAct2d(6, nn.Softmax(1)), nn.Conv2d(6, 2, 1))
    graph = trace(model, torch.zeros(2, 3, 9, 9))
    assert graph.sites == []
    assert "'1' (BatchNormAct2d) holds a Identity, Softmax without a rule" in str(graph.frozen["0"])


def test_the_inputs_of_a_standardised_convolution_stay() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), ScaledStdConv2d(6, 8, 3), nn.Conv2d(8, 2, 1))
    graph = trace(model, torch.zeros(2, 3, 9, 9))
    assert "(ScaledStdConv2d) standardises its filters over input channels" in str(graph.frozen["0"])
