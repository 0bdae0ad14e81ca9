"""The latency at the end of a run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rbprune.measure.run_latency import make_timer, time_pair


@pytest.fixture(autouse=True)
def _barely_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)


class Seen(nn.Module):
    """Notes the sizes of what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.sizes: set[int] = set()

    def forward(self, x: Tensor, flag: bool = True) -> Tensor:
        self.sizes.add(len(x))
        assert not self.training
        return x * self.weight


def test_a_smaller_network_is_faster_and_both_are_given_back() -> None:
    dense, pruned = (nn.Conv2d(3, channels, 5).train() for channels in (512, 1))
    found = time_pair(dense, pruned, torch.zeros(4, 3, 64, 64))
    assert found["batch"] == 1
    assert found["dense_ms"] > found["pruned_ms"] > 0
    assert found["ratio"] > 1.5
    assert "cpu (" in found["machine"]
    assert dense.training
    assert pruned.training


def test_one_example_is_timed_and_other_inputs_stay_as_they_are() -> None:
    dense = Seen()
    assert time_pair(dense, Seen(), torch.zeros(4, 2))["batch"] == 1
    assert dense.sizes == {1}
    dense = Seen()
    assert time_pair(dense, Seen(), (torch.zeros(4, 2), False))["batch"] == 4
    assert dense.sizes == {4}


def test_a_network_that_cannot_be_timed_is_a_warning_and_not_the_end_of_the_run() -> None:
    told: list[str] = []
    timer = make_timer(lambda: nn.Linear(3, 1), torch.zeros(2, 4))
    assert timer(nn.Linear(4, 1), told.append) is None
    assert len(told) == 1
    assert "the latency could not be measured: RuntimeError: mat1 and mat2" in told[0]
