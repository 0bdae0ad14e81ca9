"""Structured Bayesian Pruning and Bayesian model reduction."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.errors import ConfigError
from tests.networks import pruner, tiny_cnn


def test_precision_of_bmrs_has_bounds_and_a_layer_of_zeros_has_a_ranking() -> None:
    for bits in (0.0, 29.0):
        with pytest.raises(ConfigError, match="prune.options.bits is a precision above 0 and up to 28 bits"):
            pruner("bmrs", tiny_cnn(), options={"bits": bits}).stage(0)
    pruner("bmrs", tiny_cnn(), options={"bits": 28.0}).stage(0).judge()
    model = tiny_cnn()
    nn.init.zeros_(model[0].weight)  # type: ignore[arg-type]
    values = pruner("l1", model, macs_ratio=2.0).stage(0).judge()["0"].value
    assert bool(values.isfinite().all())


def test_a_channel_goes_when_its_noise_is_louder_than_its_signal() -> None:
    """SNR = E theta / sd theta, here from the moments of a log-normal factor over a fine grid of its logarithm."""
    stage = pruner("sbp", tiny_cnn(), only=["0"]).stage(0)
    mu, sigma = torch.tensor([-0.1, -3.0, -6.0, -10.0, -1.0, -4.0]), torch.tensor([0.1, 0.3, 4.0, 6.0, 3.0, 0.5])
    with torch.no_grad():
        stage.factors.mu.copy_(mu)  # type: ignore[attr-defined]
        stage.factors.log_sigma.copy_(sigma.log())  # type: ignore[attr-defined]
    grid = torch.linspace(-20, 0, 400_001, dtype=torch.float64)
    snr = []
    for m, s in zip(mu.tolist(), sigma.tolist(), strict=True):
        weight = (-0.5 * ((grid - m) / s) ** 2).exp()
        mean = float((weight * grid.exp()).sum() / weight.sum())
        square = float((weight * (2 * grid).exp()).sum() / weight.sum())
        snr.append(mean / (square - mean**2) ** 0.5)
    verdict = stage.judge()["0"]
    torch.testing.assert_close(verdict.value, -torch.tensor(snr, dtype=torch.float64).log(), rtol=1e-2, atol=1e-2)
    assert verdict.redundant.tolist() == [value <= 1 for value in snr]
    assert {True, False} == set(verdict.redundant.tolist())
    stage.abandon()


@pytest.mark.parametrize("method", ["sbp", "bmrs"])
def test_the_weight_of_the_divergence_multiplies_it(method: str) -> None:
    one, three = (pruner(method, tiny_cnn(), options={"kl_weight": weight}).stage(0) for weight in (1.0, 3.0))
    torch.testing.assert_close(three.kl(), 3 * one.kl())
    for stage in (one, three):
        stage.abandon()
