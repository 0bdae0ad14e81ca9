"""When rates are at rest, and when a stage is over."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rbprune import Price, Pruner, trace
from rbprune.errors import DataError
from rbprune.methods.ending import CALM, CLOSING, CLOSING_LOOK, STAGE_STEPS, Settling, StageEnding
from rbprune.methods.rbp import DiracStage
from tests.networks import pruner, see_curvature, stage_context, stripes, tiny_cnn


def test_settled_means_no_crossing_and_no_movement() -> None:
    settling = Settling(tolerance=0.01, interval=2, threshold=0.5)
    moving, crossing, still = torch.tensor([0.1, 0.9]), torch.tensor([0.1, 0.4]), torch.tensor([0.101, 0.401])
    assert not settling.settled(1, moving), "only every second step is looked at"
    assert not settling.settled(2, moving), "nothing to compare with yet"
    assert not settling.settled(4, crossing)
    assert not settling.settled(6, still), "once is not enough"
    assert not settling.settled(8, still)
    assert settling.settled(10, still)
    assert not settling.settled(12, moving), "and moving again is not settled"
    assert not Settling(0, 1, 0.5).settled(1, still)


def test_slow_rates_are_not_at_rest_while_they_move() -> None:
    """Ten steps of Adam at 1e-3 move a rate by 0.01 at most, which is no rest."""
    settling = Settling(tolerance=0.01, interval=10, threshold=0.5, speed=1e-3)
    assert not any(settling.settled(step, torch.tensor([1e-3 * step])) for step in range(1, 200))
    assert any(settling.settled(step, torch.tensor([0.2])) for step in range(200, 260))


def rate_stage(error: float = 0.1, **settings: object) -> DiracStage:
    """A stage of six channels at 20 nats, with evidence for three above and for three below the price, known to so many
    nats; the rates are where the evidence leads them."""
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    stage = DiracStage(graph, ["0"], stage_context(graph, rates="fixed-point", **settings))  # type: ignore[arg-type]
    see_curvature(stage.factors.curvature, 2 * torch.tensor([10.0, 14.0, 18.0, 22.0, 26.0, 30.0]), 2 * error)
    stage.param_groups(0.1, 1.0)
    stage.after_step()
    return stage


def run_to_the_end(ending: StageEnding, stage: DiracStage) -> tuple[int | None, int]:
    """Steps until the stage is over; the one after which it began to close, and the last."""
    began, step = None, 0
    while True:
        step += 1
        stage.after_step()
        stage.clamp()
        over = ending.is_over(step)
        began = step if began is None and stage.closing else began
        if over:
            stage.abandon()
            return began, step


def test_rest_closes_a_stage_early() -> None:
    stage = rate_stage()
    ending = StageEnding(stage, Settling(0.01, 10, 0.5), 1000)
    began, last = run_to_the_end(ending, stage)
    assert began == 10 * (CALM + 1), "the first look has nothing to compare with"
    assert began < last <= began + CLOSING and last % CLOSING_LOOK == 0
    assert ending.settled and stage.closed


@pytest.mark.parametrize(("steps", "closing"), [(1000, CLOSING), (60, 20), (4, 1)])
def test_length_closes_a_stage_late(steps: int, closing: int) -> None:
    """The last forty steps, and at most a third of them all."""
    stage = rate_stage()
    ending = StageEnding(stage, Settling(0, 10, 0.5), steps)
    began, last = run_to_the_end(ending, stage)
    assert began == steps - closing
    assert began < last <= steps and not ending.settled


def test_a_stage_that_is_undecided_goes_on_though_its_rates_are_at_rest() -> None:
    """Evidence that is known to 20 nats says nothing about a price of 20."""
    stage = rate_stage(error=20.0)
    assert not stage.decided
    ending = StageEnding(stage, Settling(0.01, 10, 0.5), 1000)
    began, last = run_to_the_end(ending, stage)
    assert began == 1000 - CLOSING and last > began and not ending.settled
    assert stage.factors.goal.tolist() == [0.0] * 6, "in doubt all stay"


def test_with_a_threshold_of_ones_own_rest_ends_a_stage_at_once() -> None:
    stage = rate_stage(error=20.0, confidence=0)
    ending = StageEnding(stage, Settling(0.01, 10, 0.5), 1000)
    assert run_to_the_end(ending, stage) == (None, 10 * (CALM + 1))
    assert ending.settled


def test_a_method_that_has_nothing_to_bring_anywhere_ends_with_its_steps() -> None:
    stage = pruner("l1", tiny_cnn(), macs_ratio=1.5).stage(0)
    ending = StageEnding(stage, None, 7)
    assert [ending.is_over(step) for step in range(1, 8)] == [False] * 6 + [True]
    assert not ending.settled and not stage.closing
    stage.abandon()


def test_an_own_loop_gets_batches_until_the_stage_is_over() -> None:
    """Rates come to rest and to 0 or 1 long before the limit, over and over the same few batches."""
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(64)
    loader = [(images[:32], labels[:32]), (images[32:], labels[32:])]
    pruner = Pruner(model, images[:1], dataset_size=64, loss_fn=F.cross_entropy, price=Price(nats=1), only=["4"])
    stage = pruner.stage(0)
    assert isinstance(stage, DiracStage)
    optimizer = torch.optim.Adam(stage.param_groups(lr=3e-3, rate_lr=0.2))
    steps = 0
    for x, y in stage.batches(loader, 2000):
        loss = F.cross_entropy(model(x), y) + stage.kl(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    assert 40 <= steps < 2000, "three looks, ten steps apart, and closing"
    assert stage.closing and stage.closed
    rates = stage.rates["4"]
    assert bool(((rates < 0.1) | (rates > 0.9)).all())
    gone = int((rates > 0.9).sum())
    assert stage.finish().channels["4"] == (12, 12 - gone)


def test_an_own_loop_ends_at_its_limit() -> None:
    stage = Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=9, method="bc").stage(0)
    assert sum(1 for _ in stage.batches([1, 2, 3], 7)) == 7
    assert sum(1 for _ in stage.batches([1, 2, 3])) == STAGE_STEPS
    stage.abandon()


def test_a_loader_that_is_empty_or_used_up_is_told() -> None:
    stage = Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=9, only=["0"]).stage(0)
    with pytest.raises(DataError, match="the loader has no batch for stage 0"):
        list(stage.batches([]))
    with pytest.raises(DataError, match="the loader has no batch any more for stage 0"):
        list(stage.batches(iter([1, 2])))
    stage.abandon()
