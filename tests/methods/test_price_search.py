"""Recursive pruning down to a number of MACs: each stage sees how the later ones rank beside it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune import Price, Pruner, trace
from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS
from rbprune.methods.price_search import PriceSearch
from rbprune.methods.rbp import DiracStage
from rbprune.methods.settings import Target
from tests.methods.residual_network import network
from tests.networks import scramble, stage_context, stripes, tiny_cnn, train_stage


def test_the_probe_changes_neither_outputs_nor_gradients() -> None:
    images, labels = stripes(16)
    found = []
    for later in ((), ("4", "8")):
        torch.manual_seed(0)
        model = scramble(tiny_cnn()).train()
        graph = trace(model, images[:1].double())
        macs = graph.macs() / 2 if later else None
        settings = stage_context(graph, rates="fixed-point", rate_init=0.3, macs=macs, later=later)
        stage = DiracStage(graph, ["0"], settings)
        torch.manual_seed(1)
        outputs = model(images.double())
        stage.kl()
        F.cross_entropy(outputs, labels).backward()
        found.append([outputs.detach(), *(p.grad for p in model.parameters()), stage.factors.curvature.running])
        if later:
            assert stage.search is not None
            assert len(stage.search.curvature.running) == sum(graph[name].channels for name in later)
            assert bool((stage.search.curvature.running > 0).any())
        stage.abandon()
        assert not any(module._forward_pre_hooks for module in model.modules())
    for plain, probed in zip(*found, strict=True):
        assert torch.equal(plain, probed)  # type: ignore[arg-type]


def test_the_probe_sees_the_curvature_of_later_channels() -> None:
    """Where a later layer gets what the first one makes, its channels have the known Gauss-Newton curvature."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(3, n, bias=False) for n in (3, 3, 4)]).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3))
        model[1].weight.copy_(torch.eye(3))
        model[2].weight.mul_(0.1)
    graph = trace(model, torch.zeros(1, 3, dtype=torch.float64))
    settings = stage_context(graph, 1000, rates="fixed-point", rate_init=1e-4, macs=20.0, later=("1",))
    stage = DiracStage(graph, ["0"], settings)
    model.train()
    x = torch.tensor([[0.5, 9.0, 20.0]], dtype=torch.float64).repeat(512, 1)
    for _ in range(400):  # no step is taken: the rates stay where the noise is slight
        model(x)
        stage.kl()
    weight = model[2].weight.detach()
    p = (x[0] @ weight.T).softmax(0)
    jacobian = weight * x[0]
    curvature = 1000 * torch.einsum("kc,kl,lc->c", jacobian, torch.diag(p) - torch.outer(p, p), jacobian)
    assert stage.search is not None
    torch.testing.assert_close(stage.search.curvature.running.double(), curvature, rtol=0.1, atol=0)
    torch.testing.assert_close(stage.factors.curvature.running.double(), curvature, rtol=0.1, atol=0)


def test_a_stage_leaves_to_later_ones_what_costs_less_there() -> None:
    graph = trace(scramble(tiny_cnn()).float(), torch.zeros(1, 1, 8, 8))
    cuts = {}
    for earned in (0.0, 1e6):
        settings = stage_context(graph, rates="fixed-point", macs=0.7 * graph.macs(), later=("4", "8"))
        stage = DiracStage(graph, ["0"], settings)
        stage.factors.curvature.updates += 1
        stage.factors.curvature.running.fill_(40)
        assert stage.search is not None
        stage.search.curvature.running.fill_(40 * earned)
        stage.search.curvature.updates += 1
        cuts[earned] = int(stage._chosen(stage.judge())["0"].sum())
        stage.abandon()
    assert cuts[0.0] == 0, "later channels earn nothing and bring all that is asked for"
    assert cuts[1e6] > 0, "later channels are dear, and so these go first"


@pytest.mark.parametrize("ratio", [1.5, 3.0])
def test_rbp_ends_at_the_macs_it_was_asked_for(ratio: float) -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(256)
    pruner = Pruner(model, images[:1], dataset_size=256, price=Price(nats=2), rates="fixed-point", macs_ratio=ratio)
    dense, left = pruner.graph.macs(), []
    for stage in pruner:
        train_stage(stage, images, labels, 12)
        stage.finish()
        left.append(pruner.graph.macs())
    assert left == sorted(left, reverse=True)
    assert ratio <= dense / left[-1] < 1.25 * ratio, "as few channels as that needs; one of conv 4 is some 8 %"


def test_the_price_is_scaled_to_where_the_macs_are_reached() -> None:
    """Whatever price was given, the rates come to say what the cut to MACs does."""
    images, labels = stripes(256)
    cuts = []
    for nats in (0.02, 2.0, 200.0):
        torch.manual_seed(0)
        model = tiny_cnn()
        pruner = Pruner(
            model, images[:1], dataset_size=256, price=Price(nats=nats), method="ibp", rates="fixed-point", macs_ratio=3
        )
        stage = pruner.stage(0)
        assert isinstance(stage, DiracStage)
        train_stage(stage, images, labels, 400)
        redundant = sum(int((rate > 0.5).sum()) for rate in stage.rates.values())
        result = stage.finish()
        gone = sum(before - after for before, after in result.channels.values())
        assert abs(redundant - gone) <= 3, "of 30 channels"
        cuts.append((result.channels, float(stage.eps2[0])))
    assert cuts[0][0] == cuts[1][0] == cuts[2][0]
    assert cuts[0][1] == pytest.approx(cuts[2][1], rel=1e-3), "it is found, not given"


def test_later_channels_are_expected_to_grow_as_the_own_ones_did() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    own, later = [graph["0"]], [graph["4"]]
    search = PriceSearch(
        graph, own, later, Price(nats=20).resolve(graph, 100), Target(MACS, 0.7 * graph.macs()), 0.1, lambda: True
    )
    early, ahead = torch.tensor([1.0, 2.0, 3.0, 40.0, 60.0, 80.0]), torch.full((12,), 50.0)
    search.update(early, ahead, 1)
    torch.testing.assert_close(search.ranks(early, ahead)["4"], torch.full((12,), 1 - 50 / 40))
    search.scale.fill_(1.0)  # 40 and more of curvature stay
    grown = torch.tensor([0.5, 0.5, 0.5, 120.0, 180.0, 240.0])
    torch.testing.assert_close(search.ranks(grown, ahead)["4"], torch.full((12,), 1 - 3 * 50 / 40))
    assert search.gates is not None
    search.gates.detach()


def test_what_branches_go_through_tells_nothing_about_channels() -> None:
    """The noise on a whole branch makes all branches far more needed, the channels of later stages hardly."""
    graph = trace(network(), torch.zeros(1, 1, 8, 8, dtype=torch.float64))
    own, later = list(graph.branches.values()), [site for site in graph.sites if site.residual == "inside"]
    prices = Price(nats=20).resolve(graph, 100)
    search = PriceSearch(graph, own, later, prices, Target(MACS, 0.7 * graph.macs()), 0.1, lambda: True)
    ahead = torch.full((sum(site.channels for site in later),), 50.0)
    search.update(torch.full((len(own),), 50.0), ahead, 1)
    search.scale.fill_(1.0)
    ranks = search.ranks(torch.full((len(own),), 500.0), ahead)
    for site in later:
        torch.testing.assert_close(ranks[site.name], torch.full((site.channels,), 1 - 50 / 40))
    assert search.gates is not None
    search.gates.detach()


def test_what_is_out_of_reach_is_told_before_anything_is_trained() -> None:
    for method, rates in (("rbp", "fixed-point"), ("ibp", "adam")):
        with pytest.raises(ConfigError, match=r"out of reach.*prune\.least"):
            Pruner(
                tiny_cnn(),
                torch.zeros(1, 1, 8, 8),
                dataset_size=9,
                method=method,
                rates=rates,
                macs_ratio=1e4,  # type: ignore[arg-type]
            )


def test_rates_by_adam_see_nothing_ahead() -> None:
    with pytest.raises(ConfigError, match=r"cannot aim at prune\.macs_ratio.*prune\.rates=fixed-point"):
        Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=9, rates="adam", macs_ratio=2)
