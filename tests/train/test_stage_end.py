"""The end of a stage: what it sees, what it cuts, what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rbprune.train.budget import FORWARD
from rbprune.train.phase import PhaseRun
from rbprune.train.runner import Runner
from rbprune.train.stage_end import CALIBRATION, OBSERVATION, end_stage
from rbprune.train.stream import LoaderStream
from rbprune.utils.seeds import mix
from tests.train.small import BATCH, STEPS, small_runner, small_stream


class Counted(LoaderStream):
    """Notes which epochs are asked for, and which batches are taken of them."""

    def __init__(self) -> None:
        plain = small_stream()
        super().__init__(plain.loader, plain.size)
        self.asked: list[int] = []
        self.taken: list[Tensor] = []

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        self.asked.append(number)
        for inputs, targets in super().epoch(number, start):
            self.taken.append(inputs)
            yield inputs, targets


def begin(tables: dict[str, Any]) -> tuple[Runner, PhaseRun, Counted]:
    """A runner whose first stage is about to end without having trained."""
    stream = Counted()
    runner = small_runner(tables, train=lambda batch_size: stream)
    current = runner._begin(runner.phases[0])
    stream.asked.clear()
    stream.taken.clear()
    return runner, current, stream


def finish(runner: Runner, current: PhaseRun) -> Any:
    return end_stage(current, runner.settings, runner.engine, runner.account, F.cross_entropy)


def test_recalibration_sees_its_own_epoch_and_counts_as_forward_passes_of_what_is_left() -> None:
    runner, current, stream = begin({"prune": {"method": "l1", "macs_ratio": 1.5}})
    before = runner.model[1].running_mean.clone()  # type: ignore[index, operator, union-attr]
    result = finish(runner, current)
    assert stream.asked == [mix(current.phase.salt, CALIBRATION)]
    assert len(stream.taken) == 3 < STEPS
    share = runner.account.share()
    assert 0.5 < share < 1 / 1.5
    assert runner.state.cost["prune"] == pytest.approx(3 / STEPS * FORWARD * share), "the cut comes first"
    assert result.channels == {n: (o, runner.graph[n].channels) for n, o in (("0", 6), ("4", 12))}
    assert not torch.equal(before[: result.channels["0"][1]], runner.model[1].running_mean)  # type: ignore[index, arg-type]


def test_what_weights_are_fitted_to_counts_as_one_more_pass_of_the_network_before_its_cut() -> None:
    runner, current, stream = begin({"prune": {"method": "l1", "macs_ratio": 1.5, "compensate": "weights"}})
    finish(runner, current)
    assert stream.asked == [mix(current.phase.salt, CALIBRATION)] * 2
    assert len(stream.taken) == 2 * 3
    share = runner.account.share()
    assert runner.state.cost["prune"] == pytest.approx(3 / STEPS * FORWARD * (1 + share))


@pytest.mark.parametrize(("observe", "seen"), [(2, 2), (20, STEPS)])
def test_a_method_that_observes_gets_so_many_batches_at_the_cost_of_steps(observe: int, seen: int) -> None:
    tables = {"prune": {"method": "taylor", "macs_ratio": 1.5, "observe": observe}, "runtime": {"recalibrate": 0}}
    runner, current, stream = begin(tables)
    finish(runner, current)
    assert stream.asked[0] == mix(current.phase.salt, OBSERVATION)
    assert sum(len(x) for x in stream.taken) == seen * BATCH
    assert runner.state.cost["prune"] == pytest.approx(seen / STEPS), "of the network before its cut"


def test_without_recalibration_statistics_stay() -> None:
    runner, current, stream = begin({"prune": {"method": "l1", "macs_ratio": 1.5}, "runtime": {"recalibrate": 0}})
    finish(runner, current)
    assert stream.taken == []
    assert runner.state.cost["prune"] == 0
    assert bool((runner.model[1].running_mean == 0).all())  # type: ignore[index, operator]


def test_a_small_budget_is_not_spent_on_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbprune.train.budget.FEWEST_RECALIBRATION", 1)
    method = {"method": "l1", "macs_ratio": 1.5}
    for budget, batches in ((0.5, 1), (2.0, 2), (5.0, 3)):
        runner, current, stream = begin({"prune": method, "budget": budget})
        finish(runner, current)
        assert len(stream.taken) == batches, "a tenth of the budget, in passes that are a third of a step"


def test_what_a_stage_warns_of_is_told_to_the_journal_and_not_printed() -> None:
    runner, current, _ = begin({"prune": {"rates": "adam"}})
    assert current.stage is not None
    current.stage.tell = runner.journal.warn
    with torch.no_grad():
        current.stage.factors.rate.fill_(0.95)  # type: ignore[attr-defined]
    result = finish(runner, current)
    warned = [event["message"] for event in runner.journal.events if event["event"] == "warning"]
    assert len(warned) == 1
    assert warned[0].startswith("every channel of '0' was redundant; the least redundant one is kept")
    assert result.guarded == ["0"]


def test_what_is_drawn_depends_on_the_seed_and_the_stage_alone() -> None:
    drawn = []
    for state in (1, 2):
        runner, current, _ = begin({"prune": {"method": "thinet", "macs_ratio": 1.2}})
        torch.manual_seed(state)
        finish(runner, current)
        drawn.append([runner.graph["0"].alive.tolist(), runner.model[4].weight.detach().clone()])  # type: ignore[index, operator]
    assert drawn[0][0] == drawn[1][0]
    assert torch.equal(drawn[0][1], drawn[1][1])
