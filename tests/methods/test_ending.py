"""When rates are at rest."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rbprune import Price, Pruner
from rbprune.errors import DataError
from rbprune.methods.ending import STAGE_STEPS, Settling
from rbprune.methods.rbp import DiracStage
from tests.networks import stripes, tiny_cnn


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
