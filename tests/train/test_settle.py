"""When rates are at rest."""

from __future__ import annotations

import torch

from rbprune.train.settle import Settling


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
