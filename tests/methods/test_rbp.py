"""Inference of the rates, by Adam and by their fixed point, and what they say."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner, models, trace
from rbprune.bayes import dirac
from rbprune.errors import ConfigError
from rbprune.methods import PruningSettings
from rbprune.methods.rbp import DiracStage
from tests.networks import pruner, stage_context, stage_of, stripes, tiny_cnn, train_stage


def test_kl_is_the_sum_over_channels_divided_by_the_data_set() -> None:
    stage = stage_of(tiny_cnn(), ["0", "4"], torch.zeros(1, 1, 8, 8))
    with torch.no_grad():
        stage.factors.rate.uniform_(0.1, 0.9)
    rates = torch.cat(list(stage.rates.values()))
    assert stage.kl().item() == pytest.approx(float(dirac.kl(rates, 0.025).sum()) / 100, rel=1e-6)


def test_an_unneeded_channel_is_found_and_a_needed_one_is_kept() -> None:
    """A channel that feeds nothing must go, one that carries the label must stay."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[1].weight.copy_(torch.tensor([[8.0, 0.0], [-8.0, 0.0]]))
        for layer in model:
            layer.bias.zero_()
    pruner = Pruner(model, torch.zeros(1, 2), dataset_size=1000, price=Price(nats=20))
    stage = pruner.stage(0)
    optimizer = torch.optim.Adam([stage.factors.rate], lr=1e-2)
    for _ in range(500):
        x = torch.randn(64, 2)
        x[:, 0] = x[:, 0].sign()
        loss = F.cross_entropy(model(x), (x[:, 0] < 0).long()) + stage.kl()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rate = stage.rates["0"]
    assert rate[0] < 0.1
    assert float(rate[1]) == pytest.approx(float(dirac.optimal_rate(torch.tensor(0.025))), abs=0.02)


def test_rrbp_stage_touches_every_block_of_a_residual_network() -> None:
    model = models.build("resnet20-cifar")
    pruner = Pruner(model, torch.zeros(1, 3, 32, 32), dataset_size=100, method="rrbp")
    stage = pruner.stage(0)
    model.train()(torch.randn(2, 3, 32, 32)).sum().backward()
    assert stage.factors.rate.grad is not None
    assert bool((stage.factors.rate.grad != 0).all())


def test_the_fixed_point_is_that_of_the_curvature() -> None:
    """Three channels of known Gauss-Newton curvature: the rates go where the formula says."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 4, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3))
        model[1].weight.mul_(0.1)  # nearly uniform probabilities, whatever the noise
    graph = trace(model, torch.zeros(1, 3, dtype=torch.float64))
    stage = DiracStage(graph, ["0"], stage_context(graph, 1000, rates="fixed-point"))
    assert stage.optimizer(0.1) is None
    model.train()
    x = torch.tensor([[0.5, 9.0, 20.0]], dtype=torch.float64).repeat(256, 1)
    for _ in range(600):
        model(x)
        stage.kl()
        stage.after_step()
    weight = model[1].weight.detach()
    with torch.no_grad():
        theta = (
            1 - stage.rates["0"].double() + torch.sqrt(stage.rates["0"] * (1 - stage.rates["0"])) * torch.randn(9999, 3)
        )
        p = ((x[:1] * theta) @ weight.T).softmax(1)
        jacobian = weight * x[:1]
        inner = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
        curvature = 1000 * torch.einsum("kc,nkl,lc->c", jacobian, inner, jacobian) / len(p)
    found = stage.factors.curvature.running.double()
    torch.testing.assert_close(found, curvature, rtol=0.1, atol=0)
    wanted = dirac.stationary_rate(found, torch.tensor(0.025)).clamp(dirac.RATE_MIN, 1 - dirac.RATE_MIN)
    torch.testing.assert_close(stage.rates["0"].double(), wanted, rtol=0.1, atol=1e-3)
    assert (stage.rates["0"] > 0.5).tolist() == (curvature < 40).tolist() == [True, False, False]


def test_the_fixed_point_says_which_outputs_it_needs() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"out": self.b(self.a(x))}

    graph = trace(Head(), torch.zeros(1, 3))
    stage = DiracStage(graph, ["a"], stage_context(graph, 100, rates="fixed-point"))
    graph.model.train()(torch.randn(4, 3))
    with pytest.raises(
        ConfigError, match=r"the model's output is a dict, and the loss is one of a tensor.*or set rates='adam'"
    ):
        stage.kl()


def test_the_fixed_point_needs_noise_per_example() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    with pytest.raises(ConfigError, match=r"fixed-point.*needs prune\.noise='example'"):
        DiracStage(graph, ["0"], stage_context(graph, 100, noise="batch", rates="fixed-point"))


def test_the_fixed_point_works_in_a_loop_of_ones_own() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(256)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(15):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    pruner = Pruner(model, images[:1], dataset_size=256, price=Price(nats=2), method="ibp", rates="fixed-point")
    for stage in pruner:
        train_stage(stage, images, labels, 60)
    assert pruner.graph.macs() < trace(tiny_cnn(), images[:1]).macs() / 1.5
    assert float((model.eval()(images).argmax(1) != labels).float().mean()) < 0.05


@pytest.mark.parametrize("fixed_point", [True, False])
def test_a_dead_channel_of_a_cheap_layer_goes_before_a_useful_one_of_a_dear_layer(fixed_point: bool) -> None:
    """By their rates it would be the other way round: a dead channel's rate is 1 - 1 / (2 price)."""
    found = pruner("ibp", tiny_cnn(), macs_ratio=1.2, rates="fixed-point" if fixed_point else "adam")
    stage = found.stage(0)
    assert isinstance(stage, DiracStage)
    dear, cheap = stage.names[0], stage.names[-1]

    def each(values: dict[str, float], else_: float) -> Tensor:
        return torch.cat([torch.full((site.channels,), values.get(site.name, else_)) for site in stage.sites])

    nats, earned = each({dear: 1000.0, cheap: 20.0}, 500.0), each({dear: 0.9, cheap: 0.0}, 3.0)
    stage.given = dirac.eps2_from_nats(nats)
    if stage.search is not None:
        stage.search.nats = nats
    curvature = 2 * nats * earned
    with torch.no_grad():
        stage.factors.rate.copy_(dirac.stationary_rate(curvature, stage.eps2))
        stage.factors.curvature.running.copy_(curvature)
        stage.factors.curvature.updates += 1
    verdicts = stage.judge()
    assert verdicts[dear].value.min() > verdicts[cheap].value.max(), "the trap is not set"
    torch.testing.assert_close(torch.cat([v.rank for v in verdicts.values()]), 1 - earned, rtol=1e-3, atol=1e-3)  # type: ignore[misc]
    if fixed_point:  # which finds the price on the way: there is none to lower
        channels = stage.finish(batches=[]).channels
    else:
        with pytest.warns(UserWarning, match=f"every channel of '{dear}', '{cheap}' was redundant"):
            channels = stage.finish(batches=[]).channels
    assert channels[cheap][1] == math.ceil(0.1 * channels[cheap][0])
    assert channels[dear][1] > 0.5 * channels[dear][0]


@pytest.mark.parametrize("rates", ["adam", "fixed-point"])
def test_the_weight_of_the_divergence_is_a_price(rates: str) -> None:
    """Half the divergence is as much as twice the evidence."""
    options: list[dict[str, float]] = [{}, {"kl_weight": 0.5}]
    one, half = (pruner("ibp", tiny_cnn(), rates=rates, options=given).stage(0) for given in options)
    assert isinstance(one, DiracStage)
    assert isinstance(half, DiracStage)
    torch.testing.assert_close(half.penalty(), 0.5 * one.penalty())
    for stage, curvature in ((one, 50.0), (half, 25.0)):
        stage.param_groups(0.1, 1.0)
        stage.factors.curvature.running.fill_(curvature)
        stage.factors.curvature.updates += 1
        stage.after_step()
    torch.testing.assert_close(half.factors.rate, one.factors.rate)


def test_what_the_curvature_takes_of_a_step_follows_from_the_way_to_the_rates() -> None:
    """A backward pass to the factors is a third of a step at most, in every second one; any loss needs two of them."""
    shares = [DiracStage.step_overhead(PruningSettings(rates=rates)) for rates in ("adam", "fixed-point", "auto")]
    assert shares == pytest.approx([0, 1 / 15, 2 / 15])
