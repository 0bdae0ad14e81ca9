"""Layers as small modules: the same computation at the full width, another width where asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rbprune import models, trace
from rbprune.measure.layer_modules import MeasuredLayer, find_layers, grid
from tests.networks import tiny_cnn


def layers_of(model: nn.Module, x: torch.Tensor) -> dict[str, MeasuredLayer]:
    return {layer.name: layer for layer in find_layers(trace(model, x), x)}


def test_what_follows_a_layer_belongs_to_it() -> None:
    found = layers_of(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    followers = {name: [type(each).__name__ for each in layer.followers] for name, layer in found.items()}
    assert followers == {
        "0": ["BatchNorm2d", "ReLU", "MaxPool2d"],
        "4": ["BatchNorm2d", "ReLU"],
        "8": ["ReLU"],
        "10": [],
    }
    assert [(layer.inputs, layer.outputs, layer.positions) for layer in found.values()] == [
        (1, 6, 64), (6, 12, 16), (192, 12, 1), (12, 3, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["resnet20-cifar", "torchvision:mobilenet_v2"])
def test_every_layer_at_its_own_width_computes_what_it_did(name: str) -> None:
    model, x = models.build(name).eval(), torch.randn(1, 3, 32, 32)
    found = layers_of(model, x)
    assert set(found) == {layer.name for layer in trace(model, x).layers()}
    seen: dict[str, tuple[torch.Size, torch.Size]] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            seen.setdefault(name, (args[0].shape, out.shape))

        return hook

    hooks = [module.register_forward_hook(note(name)) for name, module in model.named_modules()]
    model(x)
    for hook in hooks:
        hook.remove()
    for layer in found.values():
        small, given = layer.at(layer.inputs, layer.outputs)
        assert given.shape == seen[layer.name][0]
        assert small[0](given).shape == seen[layer.name][1]
        copied = small[0]
        copied.load_state_dict(layer.module.state_dict())
        assert torch.equal(copied(given), layer.module(given))
        small(given)


def test_other_widths() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)),
        *(nn.Conv2d(8, 16, 3, groups=8), nn.ReLU6(), nn.Conv2d(16, 4, 1)),
    )
    found = layers_of(model, torch.zeros(2, 3, 12, 12))
    first, x = found["0"].at(2, 5)
    assert (x.shape, first(x).shape, first[1].num_features) == ((2, 2, 12, 12), (2, 5, 6, 6), 5)
    deep, x = found["2"].at(8, 6)
    assert found["2"].depthwise and (x.shape[1], deep[0].groups, deep(x).shape[1]) == (3, 3, 6)
    assert found["2"].widths(2, 6)[0] == [8]


def test_layers_of_one_shape_have_one_key() -> None:
    found = layers_of(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    assert len(found) == 20 and len({layer.key for layer in found.values()}) <= 10


class Twice(nn.Module):
    """Calls a layer two times."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(4, 4, 1), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(self.conv(x)).mean((2, 3)))


def test_a_layer_that_is_called_twice_takes_twice_its_time() -> None:
    found = layers_of(Twice(), torch.zeros(1, 4, 3, 3))
    assert found["conv"].calls == 2 and "2 times" in found["conv"].key


class Named(nn.Module):
    """Calls its layers by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(input=self.norm(input=self.conv(input=x)).mean((2, 3)))


def test_layers_that_are_called_by_keyword_are_found() -> None:
    found = layers_of(Named(), torch.zeros(1, 3, 8, 8))
    assert list(found) == ["conv", "head"]
    assert found["conv"].shape == (1, 3, 8, 8) and [type(f) for f in found["conv"].followers] == [nn.BatchNorm2d]


def test_a_grid_ends_at_the_whole_width() -> None:
    for width in (1, 3, 7, 20, 64, 100, 512):
        for step in (1, 8, 16):
            widths = grid(width, step, 6)
            assert widths[-1] == width and all(each % step == 0 for each in widths[:-1]) and len(widths) <= 6
