"""Inference of the rates, by Adam and by their fixed point, and the price that it follows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner, models, trace
from rbprune.bayes import dirac
from rbprune.bayes.explained import explained_nats
from rbprune.bayes.likelihood import Softmax
from rbprune.errors import ConfigError
from rbprune.methods import PruningSettings
from rbprune.methods.price import DefaultPrice
from rbprune.methods.rbp import DiracStage
from tests.networks import learn_stripes, pruner, see_curvature, stage_context, stage_of, stripes, tiny_cnn, train_stage


def test_kl_is_the_sum_over_channels_divided_by_the_data_set() -> None:
    stage = stage_of(tiny_cnn(), ["0", "4"], torch.zeros(1, 1, 8, 8))
    with torch.no_grad():
        stage.factors.rate.uniform_(0.1, 0.9)
    rates = torch.cat(list(stage.rates.values()))
    assert stage.kl().item() == pytest.approx(float(dirac.kl(rates, 0.025).sum()) / 100, rel=1e-6)


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
        see_curvature(stage.factors.curvature, torch.full_like(stage.factors.rate.detach(), curvature))
        stage.after_step()
    torch.testing.assert_close(half.factors.rate, one.factors.rate)


def test_what_the_curvature_takes_of_a_step_follows_from_the_way_to_the_rates() -> None:
    """A backward pass to the factors is a third of a step at most, in every tenth one; any loss needs two of them."""
    shares = [DiracStage.step_overhead(PruningSettings(rates=rates), 200) for rates in ("adam", "fixed-point", "auto")]
    assert shares == pytest.approx([0, 1 / 30, 2 / 30])


@pytest.mark.parametrize(("steps", "looks"), [(20, 10), (48, 16), (112, 16), (200, 20)])
def test_a_short_stage_looks_more_often(steps: int, looks: int) -> None:
    model, (images, labels) = tiny_cnn(), stripes(32)
    stage = Pruner(model, images[:1], dataset_size=32, rates="fixed-point").stage(0)
    assert isinstance(stage, DiracStage)
    optimizer = torch.optim.SGD(stage.param_groups(lr=1e-3))
    made = 0
    for x, y in stage.batches([(images, labels)], steps):
        loss = F.cross_entropy(model(x), y) + stage.kl(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        made += 1
    assert stage.factors.curvature.updates == -(-made // stage.factors.interval)
    assert -(-steps // stage.factors.interval) == looks
    stage.abandon()


def watch_outputs(model: nn.Module) -> list[Tensor]:
    """Will hold what the model makes of every batch, noise and all."""
    seen: list[Tensor] = []
    model.register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    return seen


@pytest.mark.parametrize("ratio", [None, 2.0])
def test_a_price_left_open_follows_what_the_first_batch_explains(ratio: float | None) -> None:
    """In a loop of one's own in which nobody has measured the dense network."""
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(64)
    learn_stripes(model)
    found = Pruner(model, images[:1], dataset_size=64, loss_fn=F.cross_entropy, macs_ratio=ratio)
    assert found.settings.price is None
    default, stage, seen = DefaultPrice.of(found.graph, 64), found.stage(0), watch_outputs(model)
    assert isinstance(stage, DiracStage)
    train_stage(stage, images, labels, 3)
    explained = explained_nats(Softmax(), seen[0])
    assert explained is not None and explained > 0.5, "a trained network"
    price = default.price(explained)
    nats = default.resolve(price).of_all(found.graph, stage.sites)
    torch.testing.assert_close(1 / (2 * stage.given), nats)
    assert found.settings.price == price, "once and for all: by the first batch of the first stage"
    if stage.search is not None:
        later = default.resolve(price).of_all(found.graph, [*stage.sites, *(found.graph[n] for n in ("4", "8"))])
        torch.testing.assert_close(stage.search.nats, later)
    stage.finish(batches=[])
    second = found.stage(1)
    assert isinstance(second, DiracStage)
    torch.testing.assert_close(1 / (2 * second.given), default.resolve(price).of_all(found.graph, second.sites))
    second.abandon()


def test_a_price_that_was_given_stays() -> None:
    model, (images, labels) = tiny_cnn(), stripes(64)
    stage = Pruner(model, images[:1], dataset_size=64, loss_fn=F.cross_entropy, price=Price(nats=7)).stage(0)
    assert isinstance(stage, DiracStage)
    train_stage(stage, images, labels, 1)
    torch.testing.assert_close(1 / (2 * stage.given), torch.full_like(stage.given, 7))
    stage.abandon()
