"""Stand-ins take the place of all tensors of a model but single values."""

from __future__ import annotations

import torch
from torch import nn

from rbprune.graph.tracing.preserve_model import preserve_model
from rbprune.graph.tracing.stand_ins import on_meta, put_stand_ins


def test_tensors_are_replaced_shared_ones_by_one_and_single_values_by_copies() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    model[0].plain = torch.zeros(2)
    weight, count = model[0].weight, model[2].num_batches_tracked
    made: dict[int, torch.Tensor] = {}
    with preserve_model(model, training=True):
        put_stand_ins(model, on_meta, made)
        assert model[0].weight is model[1].weight is made[id(weight)]
        assert isinstance(model[0].weight, nn.Parameter) and model[0].weight.is_meta and model[0].plain.is_meta
        assert not model[2].num_batches_tracked.is_meta and model[2].num_batches_tracked is not count
    assert model[0].weight is weight and model[2].num_batches_tracked is count
