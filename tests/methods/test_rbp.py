"""What becomes of channels by their rates: doubt, the closing of a stage, the forecast of a cut."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner, trace
from rbprune.bayes import dirac
from rbprune.methods.dirac_noise import OPEN
from rbprune.methods.rbp import NEAR, DiracStage
from tests.networks import learn_stripes, pruner, see_curvature, stage_context, stripes, tiny_cnn, train_stage


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
        see_curvature(stage.factors.curvature, curvature)
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


def seen_stage(evidence: list[float], error: float, **settings: object) -> DiracStage:
    """A stage of the first layer at 20 nats a channel, in which the evidence for each channel was estimated with this
    standard error, and the rates are at their fixed points."""
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    stage = DiracStage(graph, ["0"], stage_context(graph, rates="fixed-point", **settings))  # type: ignore[arg-type]
    curvature = 2 * torch.tensor(evidence)
    see_curvature(stage.factors.curvature, curvature, 2 * error)
    torch.testing.assert_close(stage.factors.curvature.standard_error(), torch.full((6,), 2 * error))
    with torch.no_grad():
        stage.factors.rate.copy_(dirac.stationary_rate(curvature, stage.eps2))
    return stage


EVIDENCE = [1.0, 12.0, 18.0, 22.0, 30.0, 200.0]


@pytest.mark.parametrize(
    ("settings", "doubtful", "gone"),
    [
        ({}, [2, 3], [0, 1]),
        ({"confidence": 0.999}, [1, 2, 3], [0]),
        ({"confidence": 1e-9}, [], [0, 1, 2]),
    ],
)
def test_in_doubt_a_channel_stays(settings: dict[str, float], doubtful: list[int], gone: list[int]) -> None:
    """20 nats a channel, each known to 3: at a level of 0.9 what is within 1.64 errors of the price is undecided."""
    stage = seen_stage(EVIDENCE, 3.0, **settings)
    assert stage.undecided() == {"0": pytest.approx(len(doubtful) / 6)}
    assert stage.judge()["0"].redundant.nonzero().flatten().tolist() == gone
    assert stage.decided == (len(doubtful) < 2), "one of six may be undecided"
    stage.abandon()


def test_without_confidence_the_threshold_decides_and_the_rates_tell_the_doubt() -> None:
    stage = seen_stage(EVIDENCE, 3.0, confidence=0)
    rates = stage.rates["0"]
    assert stage.judge()["0"].redundant.tolist() == (rates > 0.5).tolist()
    assert stage.undecided() == {"0": pytest.approx(float(((rates >= 0.1) & (rates <= 0.9)).float().mean()))}
    assert stage.decided
    stage.close(10)
    assert not stage.closing, "rates are folded as they are"
    stage.abandon()


@pytest.mark.parametrize(("confidence", "gone"), [(0.9, [4, 5]), (0, [3, 4, 5])])
def test_a_rate_by_adam_is_decided_near_0_and_1(confidence: float, gone: list[int]) -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    stage = DiracStage(graph, ["0"], stage_context(graph, rates="adam", confidence=confidence))
    with torch.no_grad():
        stage.factors.rate.copy_(torch.tensor([0.01, 0.05, 0.3, 0.8, 0.95, 0.99]))
    assert stage.undecided() == {"0": pytest.approx(2 / 6)}
    assert stage.judge()["0"].redundant.nonzero().flatten().tolist() == gone
    stage.close(10)
    assert not stage.closing and stage.closed, "Adam is not led anywhere"
    stage.abandon()


def closing_steps(stage: DiracStage) -> int:
    """Steps until a stage is closed."""
    count = 0
    while not stage.closed:
        stage.after_step()
        stage.clamp()
        count += 1
        assert count < 1000
    return count


@pytest.mark.parametrize("steps", [3, 20, 40])
def test_closing_brings_the_rates_to_0_or_1_within_its_steps(steps: int) -> None:
    stage = seen_stage(EVIDENCE, 3.0)
    assert (stage.closing, stage.closed, stage.factors.goal.unique().tolist()) == (False, True, [OPEN])
    stage.close(steps)
    assert stage.closing and not stage.closed, "the rates in the middle have to go somewhere"
    assert 1 <= closing_steps(stage) <= steps
    goal = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert float((stage.rates["0"] - torch.tensor(goal)).abs().max()) < NEAR
    assert stage.undecided() == {"0": pytest.approx(2 / 6)}, "as it was when the decision fell"


def test_what_was_decided_is_not_decided_again() -> None:
    """Whatever the evidence says while the stage closes; the channels that stay keep nearly all of their weight."""
    stage = seen_stage(EVIDENCE, 3.0)
    stage.close(10)
    closing_steps(stage)
    stage.factors.curvature.running.fill_(1e6)
    stage.close(10)
    assert stage.factors.goal.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], "a second time changes nothing"
    result = stage.finish(batches=[])
    assert result.channels == {"0": (6, 4)} and stage.graph["0"].alive.tolist() == [2, 3, 4, 5]
    assert result.undecided == {"0": pytest.approx(2 / 6)}
    record = result.records["0"]
    assert record.evidence is not None and record.evidence.error is not None
    assert record.evidence.nats.tolist() == pytest.approx(EVIDENCE), "as it was when the decision fell"
    assert record.evidence.error.tolist() == pytest.approx([3.0] * 6)
    assert record.verdicts() == ["goes", "goes", "undecided", "undecided", "stays", "stays"]


def test_rates_by_adam_imply_the_evidence_without_its_error() -> None:
    """The evidence is the one whose best rate is the rate that was found."""
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    stage = DiracStage(graph, ["0"], stage_context(graph, rates="adam", confidence=0))
    rates = torch.tensor([0.01, 0.05, 0.3, 0.8, 0.9, 0.95])
    with torch.no_grad():
        stage.factors.rate.copy_(rates)
    evidence = (stage.judge(), stage.evidence["0"])[1]
    assert evidence.error is None
    assert evidence.price.tolist() == pytest.approx([20.0] * 6)
    found = dirac.stationary_rate(2 * evidence.nats, torch.full((6,), 0.025))
    torch.testing.assert_close(found, rates, rtol=1e-3, atol=1e-4)
    assert not bool(evidence.undecided.any()), "without confidence the threshold decides"
    stage.abandon()


def test_the_last_channel_of_a_closing_site_goes_to_rate_0() -> None:
    stage = seen_stage([3.0, 1.0, 2.0, 0.5, 0.5, 0.5], 0.1)
    with pytest.warns(UserWarning, match="every channel of '0' was redundant; the least redundant one is kept"):
        stage.close(10)
    assert stage.factors.goal.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0], "that of the most evidence stays"
    closing_steps(stage)
    assert float(stage.rates["0"][0]) < NEAR, "it is folded at nearly its whole weight"
    result = stage.finish(batches=[])
    assert (result.channels, result.guarded) == ({"0": (6, 1)}, ["0"])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_forecast_of_a_cut_is_within_a_factor_of_two_of_what_is_measured(seed: int) -> None:
    """In a loop of one's own with a pruner that has measured the dense network."""
    torch.manual_seed(seed)
    model, (images, labels) = tiny_cnn(), stripes(512, seed)
    learn_stripes(model, 30)
    batches = list(zip(images.split(64), labels.split(64), strict=True))
    found = Pruner(model, images[:1], dataset_size=512, loss_fn=F.cross_entropy, price=Price(nats=20), max_rise=100)
    found.measure(batches[:5])
    cuts = []
    for stage in found:  # left while the rates are on their way, so that the cuts still cost something
        optimizer = torch.optim.SGD(stage.param_groups(lr=1e-3, rate_lr=0.05))
        for x, y in (batches * 4)[:30]:
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) + stage.kl()).backward()
            optimizer.step()
        cuts.append(stage.finish().cut)
    large = [cut for cut in cuts if cut.measured is not None and cut.measured > 0.01]
    assert len(large) >= 2 and all(cut.asked == cut.gone for cut in cuts)
    for cut in large:
        assert cut.forecast is not None and cut.measured is not None
        assert 0.5 < cut.forecast / cut.measured < 2, cut
    assert all(cut.forecast is not None and cut.forecast < 0.05 for cut in cuts if cut not in large)


@pytest.mark.parametrize(("power", "seen"), [(2, 1.0), (3, 15 / 16)])
def test_what_the_forecast_sees_of_a_power_of_the_way(power: int, seen: float) -> None:
    """The outputs are linear in theta, so a power of their distance from where they begin is one of the way."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4)).double(), torch.randn(50, 5).double()
    rates = torch.tensor([0.9, 0.1, 0.2, 0.8, 0.3, 0.4])
    gone = torch.tensor([True, False, False, True, False, False])

    def outputs_with(theta: Tensor) -> Tensor:
        return F.linear(model[0](x) * theta.double(), model[1].weight, model[1].bias).detach()

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).pow(power).sum(1).mean()

    begin, end = outputs_with(1 - rates), outputs_with((1 - rates) * ~gone)
    found = Pruner(model, x[:1], dataset_size=50, loss_fn=loss_fn, price=Price(nats=20), max_rise=100)
    found.measure([(x, begin)])
    stage = found.stage(0)
    assert isinstance(stage, DiracStage)
    with torch.no_grad():
        stage.factors.rate.copy_(rates)
    stage.factors.curvature.updates = 1
    forecast = stage.forecast({"0": gone})
    assert forecast.rise == pytest.approx(seen * float(loss_fn(end, begin)), rel=1e-5) and forecast.passes == 3
    stage.abandon()
