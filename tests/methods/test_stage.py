"""Noise on the consumers' input, inference of rates, and the cut."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner, models, trace
from rbprune.bayes import dirac
from rbprune.errors import ConfigError
from rbprune.methods.rbp import DiracStage
from rbprune.methods.stage import GateStage
from tests.networks import relative_error, scramble, stage_context, stripes, tiny_cnn, train_stage

KEEP_ALL = {"ibp": 0.999, "sbp": 1e-9, "bmrs": 1e9, "bc": 1e9, "bc-gnj": 1e9, "dds": None}
"""Thresholds, in each method's own unit, at which nothing goes."""


def stage_of(model: nn.Module, names: list[str], example: Tensor, **options: object) -> DiracStage:
    graph = trace(model, example)
    return DiracStage(graph, names, stage_context(graph, **options))


def test_kl_is_the_sum_over_channels_divided_by_the_data_set() -> None:
    stage = stage_of(tiny_cnn(), ["0", "4"], torch.zeros(1, 1, 8, 8))
    with torch.no_grad():
        stage.factors.rate.uniform_(0.1, 0.9)
    rates = torch.cat(list(stage.rates.values()))
    assert stage.kl().item() == pytest.approx(float(dirac.kl(rates, 0.025).sum()) / 100, rel=1e-6)


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
    stage = stage_of(model, ["0", "4"], x)
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
        stage.factors.rate.copy_(torch.tensor([0.99, 0.98, 0.9, 0.97, 0.99, 0.99]))
    with pytest.warns(UserWarning, match=r"every channel of '0' was redundant.*a lower prune\.price"):
        result = stage.finish(batches=[])
    assert result.guarded == ["0"]
    assert model[0].out_channels == 1
    assert stage.graph["0"].alive.tolist() == [2]


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
    for _ in range(1500):
        x = torch.randn(64, 2)
        x[:, 0] = x[:, 0].sign()
        loss = F.cross_entropy(model(x), (x[:, 0] < 0).long()) + stage.kl()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rate = stage.rates["0"]
    assert rate[0] < 0.1
    assert float(rate[1]) == pytest.approx(float(dirac.optimal_rate(torch.tensor(0.025))), abs=0.02)


def test_own_loop_ends_smaller_and_recalibrated() -> None:
    torch.manual_seed(0)
    model = tiny_cnn()
    x, y = stripes(512)
    pruner = Pruner(model, x[:2], dataset_size=512, price=Price(nats=40))
    before = pruner.graph.macs()
    names = []
    for stage in pruner:
        names.append(stage.names)
        optimizer = torch.optim.Adam(stage.param_groups(lr=3e-3, rate_lr=3e-2))
        for step in range(120):
            rows = slice(step % 8 * 64, step % 8 * 64 + 64)
            loss = F.cross_entropy(model(x[rows]), y[rows]) + stage.kl()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert names == [["0"], ["4"], ["8"]]
    assert pruner.graph.macs() < before / 2
    test_x, test_y = stripes(300, seed=1)
    assert float((model.eval()(test_x).argmax(1) == test_y).float().mean()) > 0.9
    assert pruner.plan.tensors["0.weight"]["0"] == pruner.graph["0"].alive.tolist()


def test_leaving_the_loop_takes_the_noise_off() -> None:
    model = tiny_cnn()
    for _stage in Pruner(model, torch.zeros(2, 1, 8, 8), dataset_size=10):
        break
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model[0].out_channels == 6


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
        ConfigError, match=r"needs outputs of shape \(examples, classes\).*a dict; set prune\.rates='adam'"
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
