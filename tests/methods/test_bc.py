"""Bayesian Compression: noise on weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from rbprune.errors import UnprunableError
from rbprune.methods.bc import GaussianWeights
from tests.networks import pruner


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Conv2d(2, 3, 3, stride=2, padding=1), (1, 2, 5, 5)), (nn.Linear(4, 3), (1, 4))]
)
def test_weight_noise_has_the_moments_of_drawn_weights(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer, x = layer.double().train(), torch.randn(shape, dtype=torch.float64)
    plain = layer(x)
    noise = GaussianWeights({"layer": layer})
    with torch.no_grad():
        noise.logvar[0].normal_(-1, 0.5)
    rows = x.expand(20000, *shape[1:])
    local = layer(rows)
    noise.detach()
    deviation = (noise.logvar[0] / 2).exp()
    draws = []
    for _ in range(4000):
        drawn = copy.deepcopy(layer)
        drawn.weight.data += deviation.detach() * torch.randn_like(deviation)
        draws.append(drawn(x))
    direct = torch.cat(draws)
    assert bool(((local.mean(0) - plain[0]).abs() < 5 * local.std(0) / len(rows) ** 0.5).all()), "five standard errors"
    torch.testing.assert_close(local.std(0), direct.std(0), rtol=0.06, atol=0.01)
    assert torch.equal(layer(x), plain), "nothing is left on the layer"


def test_a_layer_without_weight_noise_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ConvTranspose2d(4, 2, 2))
    with pytest.raises(UnprunableError, match=r"no weight noise for '1' \(ConvTranspose2d\)"):
        pruner("bc", model).stage(0)
