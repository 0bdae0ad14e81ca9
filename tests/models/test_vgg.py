from __future__ import annotations

import torch
from torch import nn

from rbprune.models.vgg import VGG16Cifar


def test_thirteen_convolutions_and_three_linear_layers() -> None:
    model = VGG16Cifar(classes=7)
    convolutions = [m for m in model.features if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6
    assert all(c.bias is None and c.kernel_size == (3, 3) for c in convolutions)
    assert [m.out_features for m in model.classifier if isinstance(m, nn.Linear)] == [512, 512, 7]
    kinds = [type(m) for m in model.classifier]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2 + [nn.Linear]


def test_pools_follow_convolutions_2_4_7_10_and_13() -> None:
    seen, after = 0, []
    for module in VGG16Cifar().features:
        seen += isinstance(module, nn.Conv2d)
        if isinstance(module, nn.MaxPool2d):
            after.append(seen)
    assert after == [2, 4, 7, 10, 13]


def test_the_signal_keeps_its_size_at_the_start() -> None:
    torch.manual_seed(0)
    out = VGG16Cifar().train()(torch.randn(16, 3, 32, 32))
    assert 0.3 < out.std() < 5
