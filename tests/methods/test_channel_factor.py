"""Factors at the input of every consumer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks import relative_error, scramble, stage_of, tiny_cnn


@pytest.mark.parametrize("per", ["example", "batch"])
def test_noise_multiplies_the_input_of_the_consumer(per: str) -> None:
    model = scramble(tiny_cnn()).train()
    x = torch.randn(5, 1, 8, 8, dtype=torch.float64)
    stage_of(model, ["4"], x, noise=per, rate_init=0.4)
    seen: list[tuple[Tensor, Tensor]] = []
    plain = model[:8](x).detach()
    model[8].register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
    torch.manual_seed(3)
    model(x)
    factor = (seen[0][0] / plain).view(5, 12, 16)
    expected = factor.nanmean(2, keepdim=True).expand_as(factor)
    assert relative_error(expected.nan_to_num(), torch.where(factor.isnan(), expected, factor).nan_to_num()) < 1e-6
    torch.manual_seed(3)
    xi = torch.randn(5 if per == "example" else 1, 12)
    theta = (0.6 + (0.4 * 0.6) ** 0.5 * xi).expand(5, 12).double()
    seen_theta = factor.nanmean(2)
    assert relative_error(theta[~seen_theta.isnan()], seen_theta[~seen_theta.isnan()]) < 1e-5


def test_all_consumers_of_a_channel_see_the_same_noise() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            return self.d(torch.cat([self.b(y), self.c(y)], 1))

    model = Fork()
    stage_of(model, ["a"], torch.zeros(2, 3), rate_init=0.5)
    seen: dict[str, Tensor] = {}
    for name in "bc":
        getattr(model, name).register_forward_hook(lambda m, args, out, name=name: seen.__setitem__(name, args[0]))
    model(torch.randn(6, 3))
    first = seen["b"]
    assert torch.equal(first, seen["c"])
    model(torch.randn(6, 3))
    assert not torch.equal(first, seen["b"]), "every forward pass draws anew"


def test_noise_works_on_every_site_of_a_concatenation() -> None:
    class Concat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 5), nn.Linear(9, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.cat([self.a(x), self.b(x)], 1))

    model = Concat().double()
    x = torch.randn(4, 3, dtype=torch.float64)
    stage = stage_of(model, ["b"], x)
    with torch.no_grad():
        stage.factors.rate.copy_(torch.tensor([0.1, 0.2, 0.3, 0.9, 0.9]))
        y = torch.cat([model.a(x), model.b(x) * torch.tensor([0.9, 0.8, 0.7, 0.1, 0.1], dtype=torch.float64)], 1)
        assert relative_error(F.linear(y, model.c.weight, model.c.bias), model.eval()(x)) < 1e-6
        stage.finish(batches=[])
        wanted = y.clone()
        wanted[:, 7:] = 0
        assert model.c.in_features == 7
        assert model(x).shape == (4, 2)
