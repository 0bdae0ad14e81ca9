"""Patches are what a layer reads: its output can be rebuilt from them, exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.errors import UnprunableError
from rbprune.methods.numerics.patches import at, check_layer, patches, places

LAYERS = {
    "plain": (nn.Conv2d(3, 4, 3, padding=1), (5, 3, 7, 8)),
    "strided": (nn.Conv2d(3, 4, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(2, 1)), (5, 3, 11, 9)),
    "one dimension": (nn.Conv1d(3, 4, 3, padding=2), (5, 3, 9)),
    "three dimensions": (nn.Conv3d(2, 4, 2), (3, 2, 4, 5, 6)),
    "same size": (nn.Conv2d(3, 4, (3, 5), padding="same", dilation=(1, 2)), (5, 3, 7, 8)),
    "reflected": (nn.Conv2d(3, 4, 3, padding=2, padding_mode="reflect"), (5, 3, 7, 8)),
    "circular": (nn.Conv2d(3, 4, 3, stride=2, padding=(1, 2), padding_mode="circular"), (5, 3, 7, 8)),
    "linear": (nn.Linear(6, 4), (5, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layers_output_is_its_weights_times_its_patches(name: str) -> None:
    layer, shape = LAYERS[name]
    layer = layer.double()
    x = torch.randn(shape, dtype=torch.float64)
    output = layer(x)
    where = places(layer, output)
    read = patches(layer, x, where)
    rebuilt = read.flatten(1) @ layer.weight.flatten(1).T + layer.bias
    torch.testing.assert_close(rebuilt, at(output, where), rtol=1e-12, atol=1e-12)


class ConvThatPads(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.pad(x, (1, 0, 1, 0)))


class ConvStandardised(nn.Conv2d):
    def _conv_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return super()._conv_forward(x, weight - weight.mean(), bias)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(4, 4, 3, groups=2), nn.ConvTranspose2d(4, 4, 2), ConvThatPads(4, 4, 3), ConvStandardised(4, 4, 3)],
    ids=["groups", "transposed", "pads itself", "standardised"],
)
def test_other_layers_are_refused_by_name(layer: nn.Module) -> None:
    with pytest.raises(UnprunableError, match=r"the output of 'up' \(Conv.*cannot be rebuilt.*prune\.keep"):
        check_layer(layer, "up")
