"""What all stages share: factors folded as evaluation uses them, the cut, the last channel."""

from __future__ import annotations

import pytest
import torch

from rbprune import Price, Pruner
from rbprune.methods.gate_stage import GateStage
from tests.networks import relative_error, scramble, stage_of, tiny_cnn

KEEP_ALL = {"ibp": 0.999, "sbp": 1e-9, "bmrs": 1e9, "bc": 1e9, "bc-gnj": 1e9, "dds": None}
"""Thresholds, in each method's own unit, at which nothing goes."""


def test_evaluation_uses_the_mean_and_folding_makes_it_the_weights_own() -> None:
    model = scramble(tiny_cnn())
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    stage = stage_of(model, ["0", "4", "8"], x)
    with torch.no_grad():
        stage.factors.rate.uniform_(0.0, 0.45)
        noisy_mean = model(x)
        plan = stage.finish(batches=[])
        assert relative_error(noisy_mean, model(x)) < 1e-6
    assert all(before == after for before, after in plan.channels.values())
    assert not model._forward_pre_hooks
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("method", ["ibp", "sbp", "bmrs", "bc", "bc-gnj", "dds"])
def test_every_methods_factors_are_folded_as_evaluation_uses_them(method: str) -> None:
    model = scramble(tiny_cnn()).eval()
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    stage = Pruner(model, x, dataset_size=64, method=method, price=Price(nats=20), threshold=KEEP_ALL[method]).stage(0)
    assert isinstance(stage, GateStage)
    with torch.no_grad():
        plain = model(x)
        for parameter in stage.factors.parameters():
            parameter.add_(0.3 * torch.rand_like(parameter))
        evaluated = model(x)
        assert relative_error(plain, evaluated) > 1e-3, "the factors change nothing, so this shows nothing"
        channels = stage.finish(batches=[]).channels
        assert relative_error(evaluated, model(x)) < 1e-6
    assert all(before == after for before, after in channels.values())


def test_the_cut_is_thresholding_the_noise() -> None:
    model = scramble(tiny_cnn())
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    stage = stage_of(model, ["0", "4"], x, confidence=0)
    with torch.no_grad():
        stage.factors.rate.uniform_(0.0, 1.0)
        drop = {name: (rate > 0.5).nonzero().flatten().tolist() for name, rate in stage.rates.items()}
        with stage.graph.mask(drop):
            masked = model(x)
        result = stage.finish(batches=[])
        assert relative_error(masked, model(x)) < 1e-6
    assert {n: before - after for n, (before, after) in result.channels.items()} == {n: len(d) for n, d in drop.items()}


def test_the_last_channel_is_spared_with_a_warning() -> None:
    model = tiny_cnn()
    stage = stage_of(model, ["0"], torch.zeros(1, 1, 8, 8))
    with torch.no_grad():
        stage.factors.rate.copy_(torch.tensor([0.99, 0.98, 0.93, 0.97, 0.99, 0.99]))
    with pytest.warns(UserWarning, match=r"every channel of '0' was redundant.*a lower prune\.price"):
        result = stage.finish(batches=[])
    assert result.guarded == ["0"]
    assert model[0].out_channels == 1
    assert stage.graph["0"].alive.tolist() == [2]
