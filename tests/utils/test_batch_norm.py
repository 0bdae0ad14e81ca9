"""Which layers of batch normalisation need more than one example."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.utils.batch_norm import batch_norms, norms_of_single_values
from tests.networks import tiny_cnn


class Frozen(nn.Sequential):
    """Normalises in evaluation whatever the mode, as detectors do."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        for norm in batch_norms(self):
            norm.eval()
        return self


def test_only_a_layer_that_sees_one_value_of_a_channel_needs_two_examples() -> None:
    x = torch.zeros(1, 1, 8, 8)
    assert norms_of_single_values(tiny_cnn(), x) == []
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    assert norms_of_single_values(flat, x) == ["2"]
    assert norms_of_single_values(Frozen(*flat), x) == []
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        flat.train()(x)


def test_looking_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout())
    model[1].eval()
    state, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    assert norms_of_single_values(model, {"input": torch.ones(1, 3)}) == ["1"]
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert [module.training for module in model] == [True, False, True]
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_batch_norms_of_any_dimension() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm3d(2)), nn.InstanceNorm2d(2), nn.LayerNorm(2))
    assert [type(norm).__name__ for norm in batch_norms(model)] == ["BatchNorm1d", "BatchNorm3d"]
