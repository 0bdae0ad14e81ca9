"""Cut tensors: the optimizer goes on, flags and precision stay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune import trace
from tests.graph.hostile import check_exact, image
from tests.graph.operations import conv
from tests.networks import relative_error, scramble, tiny_cnn


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Adafactor", "RMSprop", "NAdam"])
def test_optimizers_go_on_after_a_cut(kind: str) -> None:
    model, x = tiny_cnn(), torch.randn(4, 1, 8, 8)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    step()
    trace(model, x).remove({"0": [1], "4": [0, 2], "8": [3]}, optimizer=optimizer)
    weights = [p for p in model.parameters() if p.dim() > 1]
    before = [p.detach().clone() for p in weights]
    step()
    assert not any(torch.equal(old, new) for old, new in zip(before, weights, strict=True))


def test_optimizer_state_follows() -> None:
    model = tiny_cnn()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(4, 1, 8, 8)
    model(x).sum().backward()
    optimizer.step()
    moments = optimizer.state[model[4].weight]["exp_avg"].clone()
    graph = trace(model, x)
    graph.remove({"0": [1], "4": [0, 2]}, optimizer=optimizer)
    kept_out = [c for c in range(12) if c not in (0, 2)]
    kept_in = [c for c in range(6) if c != 1]
    assert torch.equal(optimizer.state[model[4].weight]["exp_avg"], moments[kept_out][:, kept_in])
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in model.parameters()}


def test_frozen_layers_stay_frozen_when_cut() -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2))).requires_grad_(False)
    model[3].weight.requires_grad_(True)
    check_exact(model, image(), sites={"0": 6})
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["3.weight"]


def test_a_model_in_half_precision_is_cut() -> None:
    model = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2)).bfloat16().eval()
    x = torch.randn(2, 3, 5, 5).bfloat16()
    graph = trace(model, x)
    drop = {"0": [1, 4]}
    with graph.mask(drop):
        masked = model(x)
    graph.remove(drop)
    assert model[0].weight.dtype == torch.bfloat16
    assert relative_error(masked.float(), model(x).float()) < 1e-2
