from __future__ import annotations

import torch
import torch.nn.functional as F

from rbprune.models.lenet import LeNet5


def test_layers_and_size() -> None:
    model = LeNet5()
    shapes = {name.removesuffix(".weight"): tuple(p.shape) for name, p in model.named_parameters() if "weight" in name}
    assert shapes == {"conv1": (20, 1, 5, 5), "conv2": (50, 20, 5, 5), "fc1": (500, 800), "fc2": (10, 500)}
    assert sum(p.numel() for p in model.parameters()) == 431_080


def test_forward_is_the_stated_function() -> None:
    model = LeNet5().double()
    x = torch.randn(3, 1, 28, 28, dtype=torch.float64)
    h = F.max_pool2d(model.conv1(x).clamp(min=0), 2)
    h = F.max_pool2d(model.conv2(h).clamp(min=0), 2)
    expected = model.fc2(model.fc1(h.reshape(3, 800)).clamp(min=0))
    torch.testing.assert_close(model(x), expected)
