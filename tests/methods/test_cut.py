"""A cut is tried, measured, and taken back to what can be afforded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rbprune.bayes.likelihood import Softmax
from rbprune.graph import ChannelGraph, trace
from rbprune.methods.compensation import WeightCompensation
from rbprune.methods.cut import (
    FAR,
    SURPRISE,
    Forecast,
    Proposal,
    StageStart,
    Transaction,
    network_state,
)
from rbprune.methods.loss_check import LossCheck
from tests.networks import stripes, tiny_cnn


@pytest.fixture
def trained() -> tuple[ChannelGraph, LossCheck]:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(96)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batches = [(images[i : i + 32], labels[i : i + 32]) for i in range(0, 96, 32)]
    return trace(model, images[:1]), LossCheck(batches, F.cross_entropy, Softmax())


def proposal(graph: ChannelGraph, gone: list[int], factor: Tensor | None = None) -> Proposal:
    mask = torch.zeros(12, dtype=torch.bool)
    mask[gone] = True
    factors = {} if factor is None else {"4": factor}
    return Proposal({"4": mask}, factors, {"4": torch.arange(12, 0, -1).float()})


def inputs(check: LossCheck) -> list[Tensor]:
    return [x for x, _ in check.batches]


def losses_without(graph: ChannelGraph, check: LossCheck, drop: list[int]) -> Tensor:
    with graph.mask({"4": drop}):
        return check.losses(graph.model, batch_statistics=True)


def test_the_first_channels_are_those_of_the_highest_rank() -> None:
    mask = torch.tensor([True, True, False, True])
    whole = Proposal({"a": mask, "b": mask}, {}, {"a": torch.tensor([1.0, 5, 9, 2]), "b": torch.tensor([4.0, 0, 9, 3])})
    assert whole.size() == 6
    assert whole.first(3).channels() == {"a": [1], "b": [0, 3]}
    assert whole.first(0).channels() == {"a": [], "b": []}


def test_a_cut_that_can_be_afforded_is_made_and_measured(trained: tuple[ChannelGraph, LossCheck]) -> None:
    graph, check = trained
    folded = torch.linspace(0.5, 1, 12)
    wanted = proposal(graph, [0, 3], folded)
    before = {name: tensor.clone() for name, tensor in graph.model.state_dict().items()}
    graph.scale(graph["4"], folded)
    plain, cut = check.losses(graph.model, batch_statistics=True), losses_without(graph, check, [0, 3])
    graph.model.load_state_dict(before)
    made, report = Transaction(graph, check, limit=math.inf, allowed=math.inf).afford(wanted, inputs(check), None)
    assert made is wanted
    assert report.measured == pytest.approx(float((cut - plain).mean()), abs=1e-6)
    assert report.error == pytest.approx(float((cut - plain).std()) / 3**0.5, abs=1e-6)
    assert (report.asked, report.gone, report.restored) == (2, 2, False)
    with graph.mask(made.channels()):
        assert report.loss == pytest.approx(float(check.losses(graph.model).mean()))
        masked = graph.model.eval()(check.batches[0][0])
    graph.remove(made.channels())
    assert torch.allclose(masked, graph.model(check.batches[0][0]), atol=1e-6), "masked is removed"


def test_trying_out_leaves_the_network_as_it_was(trained: tuple[ChannelGraph, LossCheck]) -> None:
    graph, check = trained
    before = {name: tensor.clone() for name, tensor in graph.model.state_dict().items()}
    Transaction(graph, check, limit=1, allowed=1).try_out(proposal(graph, [0, 1, 2], torch.full((12,), 0.3)))
    assert all(torch.equal(before[name], tensor) for name, tensor in graph.model.state_dict().items())


def test_what_costs_more_than_it_is_worth_is_taken_back(trained: tuple[ChannelGraph, LossCheck]) -> None:
    graph, check = trained
    order = list(range(8))
    losses = [float(losses_without(graph, check, order[:k]).mean()) for k in range(9)]
    rises = [loss - losses[0] for loss in losses]
    each = max(rise / k for k, rise in enumerate(rises[:6]) if k) * 1.001
    assert rises[8] > 8 * each, "else there is nothing to take back"
    wanted = replace(proposal(graph, order), worth={"4": torch.full((12,), each)})
    transaction = Transaction(graph, check, limit=math.inf, allowed=math.inf)
    made, report = transaction.afford(wanted, inputs(check), None)
    assert 0 < made.size() < 8
    assert rises[made.size()] <= made.size() * each < rises[8]
    assert (report.asked, report.gone) == (8, made.size())
    generous = replace(wanted, worth={"4": torch.full((12,), rises[8])})
    assert transaction.afford(generous, inputs(check), None)[0] is generous


def test_a_cut_above_the_limit_is_taken_back_to_what_can_be_afforded(
    trained: tuple[ChannelGraph, LossCheck],
) -> None:
    graph, check = trained
    order = list(range(11))
    rises = [float(losses_without(graph, check, order[:k]).mean()) for k in range(12)]
    limit = (rises[0] + max(rises)) / 2
    made, report = Transaction(graph, check, limit=limit, allowed=math.inf).afford(
        proposal(graph, order), inputs(check), None
    )
    kept = made.size()
    assert 0 < kept < 11
    assert made.channels() == {"4": order[:kept]}, "the highest ranks go first"
    assert rises[kept] <= limit < rises[kept + 1]
    assert (report.asked, report.gone) == (11, kept)


def test_where_the_stage_itself_did_the_damage_the_network_of_before_it_is_cut(
    trained: tuple[ChannelGraph, LossCheck],
) -> None:
    graph, check = trained
    start = network_state(graph.model)
    good = float(check.losses(graph.model, batch_statistics=True).mean())
    with torch.no_grad():
        graph.model[10].weight.mul_(-1)  # type: ignore[index, union-attr, operator]
    ranks = {"4": torch.arange(12).float()}
    made, report = Transaction(graph, check, limit=good + 0.2, allowed=math.inf).afford(
        proposal(graph, list(range(11)), torch.full((12,), 0.01)), inputs(check), StageStart(start, ranks)
    )
    assert report.restored and report.gone < 11
    assert made.channels()["4"] == list(range(11 - made.size(), 11)), "by the ranks of before the stage"
    torch.testing.assert_close(graph.model[10].weight, start["10.weight"])  # type: ignore[index, union-attr]
    assert report.measured is not None and report.measured <= 0.2


def test_the_network_of_before_the_stage_is_compensated_by_what_it_reads_itself(
    trained: tuple[ChannelGraph, LossCheck],
) -> None:
    graph, check = trained
    start = network_state(graph.model)
    good = float(check.losses(graph.model, batch_statistics=True).mean())
    with torch.no_grad():
        graph.model[10].weight.mul_(-1)  # type: ignore[index, union-attr, operator]
        graph.model[5].weight.mul_(-1)  # type: ignore[index, union-attr, operator]
    wanted = proposal(graph, list(range(11)), torch.full((12,), 0.01))
    wanted.compensation = WeightCompensation(graph, ["4"], inputs(check))
    transaction = Transaction(graph, check, limit=good + 0.2, allowed=math.inf)
    made, report = transaction.afford(wanted, inputs(check), StageStart(start, {"4": torch.arange(12).float()}))
    assert report.restored and 0 < made.size() < 11
    fitted = graph.model[8].weight.detach().clone()  # type: ignore[index, union-attr, operator]
    with torch.no_grad():
        graph.model.load_state_dict(start)
    torch.manual_seed(0)
    WeightCompensation(graph, ["4"], inputs(check))(made.gone)
    torch.testing.assert_close(fitted, graph.model[8].weight.detach())  # type: ignore[index, union-attr, operator]


def test_what_was_no_better_before_the_stage_is_not_restored(trained: tuple[ChannelGraph, LossCheck]) -> None:
    graph, check = trained
    worse = network_state(graph.model)
    worse["10.weight"] = -worse["10.weight"]
    made, report = Transaction(graph, check, limit=-1, allowed=math.inf).afford(
        proposal(graph, [0, 1]), inputs(check), StageStart(worse, {"4": torch.zeros(12)})
    )
    assert (made.size(), report.restored) == (0, False), "nothing can be afforded"


@pytest.mark.parametrize("known", [True, False])
def test_a_cut_far_above_its_forecast_is_a_surprise(trained: tuple[ChannelGraph, LossCheck], known: bool) -> None:
    graph, check = trained
    wanted = proposal(graph, list(range(11)))
    rise = float(
        (losses_without(graph, check, list(range(11))) - check.losses(graph.model, batch_statistics=True)).mean()
    )
    wanted.forecast = Forecast(rise / FAR / 1.1 if not known else rise / FAR * 1.1)
    allowed = rise / SURPRISE / 1.1
    made, report = Transaction(graph, check, limit=math.inf, allowed=allowed).afford(wanted, inputs(check), None)
    assert (made.size() == 11) is known
    assert (report.forecast is not None) is known, "a forecast is of the cut that was made"


def test_every_pass_is_counted_and_what_the_forecast_saw_is_not_computed_again(
    trained: tuple[ChannelGraph, LossCheck], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, check = trained
    wanted = proposal(graph, [0, 1])
    before = check.losses(graph.model, batch_statistics=True) + 1
    wanted.forecast = Forecast(0.0, before, passes=2)
    passes: list[int] = []
    monkeypatch.setattr(LossCheck, "losses", counted(LossCheck.losses, passes))
    report = Transaction(graph, check, limit=math.inf, allowed=math.inf).make(wanted, inputs(check))
    assert (report.passes, len(passes)) == (2 + 2, 2)
    now = check.losses(graph.model, batch_statistics=True)
    assert report.measured == pytest.approx(float((now - before).mean()), abs=1e-5)
    passes.clear()
    later = Proposal({"4": torch.arange(10) > 0}, {}, {"4": torch.arange(10).float()})
    report = Transaction(graph, check, limit=-1, allowed=math.inf).make(later, inputs(check))
    assert report.passes == len(passes) > 4, "a cut that is taken back is tried several times"


def counted(losses: Callable[..., Tensor], passes: list[int]) -> Callable[..., Tensor]:
    def count(*args: Any, **options: Any) -> Tensor:
        passes.append(1)
        return losses(*args, **options)

    return count
