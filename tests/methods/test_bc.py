"""Bayesian Compression: noise on weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call

from rbprune.errors import UnprunableError
from rbprune.methods.bc import GaussianWeights, HorseshoeStage, JeffreysStage
from tests.networks import pruner, tiny_cnn


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
        drawn = layer.weight + deviation.detach() * torch.randn_like(deviation)  # type: ignore[operator]
        draws.append(functional_call(layer, {"weight": drawn}, (x,)))
    direct = torch.cat(draws)
    assert bool(((local.mean(0) - plain[0]).abs() < 5 * local.std(0) / len(rows) ** 0.5).all()), "five standard errors"
    torch.testing.assert_close(local.std(0), direct.std(0), rtol=0.06, atol=0.01)
    assert torch.equal(layer(x), plain), "nothing is left on the layer"


def test_a_layer_without_weight_noise_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ConvTranspose2d(4, 2, 2))
    with pytest.raises(UnprunableError, match=r"no weight noise for '1' \(ConvTranspose2d\)"):
        pruner("bc", model).stage(0)
    model = nn.Sequential(nn.Flatten(2), nn.Linear(64, 4), nn.GRU(4, 2, batch_first=True))
    with pytest.raises(UnprunableError, match=r"no weight noise for '2' \(GRU\)"):
        pruner("bc", model).stage(0)


@pytest.mark.parametrize("method", ["bc", "bc-gnj"])
def test_the_divergence_is_of_scales_and_weights_over_the_data(method: str) -> None:
    stage = pruner(method, tiny_cnn(), only=["0", "4"], options={"kl_weight": 2.0}).stage(0)
    assert isinstance(stage, HorseshoeStage | JeffreysStage)
    weights = torch.zeros(())
    for layer, logvar in zip(stage.weights.layers, stage.weights.logvar, strict=True):
        w = layer.weight.detach()  # type: ignore[operator, union-attr]
        weights = weights + 0.5 * (logvar.exp() + w.square() - 1 - logvar).sum().detach()
    torch.testing.assert_close(stage.kl().detach(), 2 * (stage.kl_of_scales().detach() + weights) / 64)
    assert [id(layer) for layer in stage.weights.layers] == [id(stage.graph.module(name)) for name in ("4", "8")]
    stage.abandon()


@pytest.mark.parametrize("method", ["bc", "bc-gnj"])
def test_a_threshold_of_ones_own_decides(method: str) -> None:
    everything, nothing = (pruner(method, tiny_cnn(), threshold=value).stage(0) for value in (-1e9, 1e9))
    assert all(bool(verdict.redundant.all()) for verdict in everything.judge().values())
    assert not any(bool(verdict.redundant.any()) for verdict in nothing.judge().values())
    for stage in (everything, nothing):
        stage.abandon()
