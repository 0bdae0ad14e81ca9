"""Phases: which there are, their numbers, their steps."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rbprune import Price, Pruner
from rbprune.errors import DataError
from rbprune.settings.sections import (
    FinetuneSettings,
    OptimSettings,
    PretrainSettings,
    PruneSettings,
    RuntimeSettings,
)
from rbprune.train.engine import Engine
from rbprune.train.phase import Phase, PhaseRun, plan_phases
from rbprune.train.phase_state import phase_tensors, phase_values, restore_phase_run
from rbprune.train.stream import LoaderStream
from tests.networks import tiny_cnn
from tests.train.small import STEPS, small_settings, small_stream


def test_fine_tuning_draws_the_same_numbers_however_many_phases_came_before() -> None:
    one, many = (Phase(number, "finetune", OptimSettings(epochs=1, lr=0.1)) for number in (1, 15))
    assert one.salt == many.salt
    stages = [Phase(number, "prune", OptimSettings(epochs=1, lr=0.1), number).salt for number in range(40)]
    assert len({one.salt, Phase(0, "pretrain", OptimSettings(epochs=1, lr=0.1)).salt, *stages}) == 42


def phase_run(stream: LoaderStream | None = None, *, epochs: float = 1, rates: str | None = None) -> PhaseRun:
    """Pretraining or, where it is said how rates are found, the first stage of rbp."""
    torch.manual_seed(0)
    model, stream = tiny_cnn(), stream or small_stream()
    stage, phase = None, Phase(0, "pretrain", PretrainSettings(epochs=epochs, lr=0.01))
    if rates is not None:
        settings = PruneSettings(epochs=epochs, rates=rates, price=Price(nats=20), rate_lr=0.1)
        stage = Pruner(model, torch.zeros(1, 1, 8, 8), dataset_size=64, settings=settings).stage(0, remember=False)
        phase = Phase(0, "prune", settings, 0)
    return PhaseRun(phase, Engine(RuntimeSettings()), model, stream, F.cross_entropy, seed=3, stage=stage)


def run_all(found: PhaseRun) -> list[float]:
    losses = []
    while not found.over:
        losses += [float(loss) for loss in found.run_epoch()]
    return losses


@pytest.mark.parametrize(
    ("tables", "kinds"),
    [
        ({}, ["prune", "prune", "finetune"]),
        ({"pretrain": {"epochs": 1, "lr": 0.1}}, ["prune", "prune", "finetune"]),
        (
            {"pretrain": {"epochs": 1, "lr": 0.1}, "model": {"weights": None}},
            ["pretrain", "prune", "prune", "finetune"],
        ),
        ({"pretrain": {"epochs": 1, "lr": 0.1}, "task": "train"}, ["pretrain"]),
        ({"task": "train"}, []),
    ],
)
def test_a_run_has_the_phases_that_its_settings_ask_for(tables: dict[str, Any], kinds: list[str]) -> None:
    phases = plan_phases(small_settings(tables), 2)
    assert [phase.kind for phase in phases] == kinds
    assert [phase.number for phase in phases] == list(range(len(kinds)))
    assert [phase.stage for phase in phases if phase.kind == "prune"] == [0, 1][: kinds.count("prune")]


def test_only_pruning_and_fine_tuning_can_have_a_teacher() -> None:
    settings = small_settings({"prune": {"distill": 0.25}, "finetune": {"distill": 0.5}})
    assert [phase.distill for phase in plan_phases(settings, 1)] == [0.25, 0.5]
    assert Phase(0, "pretrain", PretrainSettings(epochs=1, lr=0.1)).distill == 0


@pytest.mark.parametrize("epochs", [0, 0.5, 1, 1.75])
def test_a_part_of_an_epoch_is_so_many_steps(epochs: float) -> None:
    found = phase_run(epochs=epochs)
    assert (found.steps, found.over) == (round(epochs * STEPS), epochs == 0)
    assert len(run_all(found)) == found.step == found.steps
    assert not found.settled
    assert found.at_epoch_end == (epochs > 0)


@pytest.mark.parametrize(("epochs", "every", "reports"), [(100, 1, 100), (101, 2, 51), (1000, 10, 100)])
def test_of_hundreds_of_epochs_not_every_one_is_reported(epochs: int, every: int, reports: int) -> None:
    found = phase_run(epochs=epochs)
    assert found.report_every == every
    due = 0
    for epoch in range(1, epochs + 1):
        found.step, found.over, found.meter.steps = STEPS * epoch, epoch == epochs, 1
        due += found.at_epoch_end
    assert due == reports


def test_a_step_is_the_step_of_a_plain_loop() -> None:
    found = phase_run(epochs=2)
    losses = run_all(found)
    torch.manual_seed(0)
    model = tiny_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    by_hand = []
    for inputs, targets in [*small_stream().loader] * 2:
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        by_hand.append(float(loss.detach()))
    assert losses == by_hand
    assert all(torch.equal(a, b) for a, b in zip(found.model.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("rates", ["adam", "fixed-point"])
def test_a_phase_goes_on_from_a_checkpoint_with_the_same_bits(rates: str) -> None:
    whole, first = phase_run(epochs=2, rates=rates), phase_run(epochs=2, rates=rates)
    losses = run_all(whole)
    taken = [float(loss) for loss in islice(first.run_epoch(), 3)]
    tensors = {name: tensor.clone() for name, tensor in phase_tensors(first).items()}
    weights = {name: tensor.clone() for name, tensor in first.model.state_dict().items()}
    values = phase_values(first)
    second = phase_run(epochs=2, rates=rates)
    second.model.load_state_dict(weights)
    restore_phase_run(second, tensors, values)
    assert second.step == 3
    assert taken + run_all(second) == losses
    assert whole.stage is not None and second.stage is not None
    assert torch.equal(whole.stage.watched(), second.stage.watched())  # type: ignore[arg-type]
    for found in (whole, first, second):
        assert found.stage is not None
        found.stage.abandon()


def test_a_loader_that_is_short_of_batches_is_told_by_epoch() -> None:
    class Shrinking(list[Any]):
        """Says that it has four batches, and gives two."""

        def __len__(self) -> int:
            return STEPS

    found = phase_run(LoaderStream(Shrinking(list(small_stream().loader)[:2]), 64))
    message = r"epoch 1 \(pretrain\) ended after 2 batches, but the loader has 4; give one that yields as many"
    with pytest.raises(DataError, match=message):
        run_all(found)


def test_a_stage_is_over_when_its_rates_are_at_rest() -> None:
    found = phase_run(epochs=50, rates="adam")
    assert found.settling is not None and found.stage is not None
    found.settling.interval = 2
    found.stage.factors.rate.requires_grad_(False)  # type: ignore[attr-defined]
    run_all(found)
    assert found.settled and found.step == 8, "the first look compares with nothing, and three must find rest"
    record = found.stage_record(3, seconds=1.5, metric="error", val_error=7.0)
    assert (record.epochs, record.settled, record.stage, record.stages) == (2.0, True, 0, 3)
    found.stage.abandon()


def test_the_record_of_an_epoch_has_its_means() -> None:
    found = phase_run(epochs=1.5)
    losses = [float(loss) for loss in found.run_epoch()]
    found.meter.seconds = 4.0
    record = found.record("error", val_error=5.0, dense_epochs=1.0)
    assert record.loss == pytest.approx(sum(losses) / STEPS)
    assert (record.phase, record.stage, record.epoch, record.epochs) == ("pretrain", None, 1, 2)
    assert (record.kl, record.lr, record.undecided, record.val_error) == (0.0, 0.01, None, 5.0)
    assert record.images_per_second == pytest.approx(64 / 4.0)


def test_the_progress_bar_says_where_a_run_is() -> None:
    found = phase_run(epochs=3)
    assert found.label([]) == "pretrain epoch 1/3"
    found.step = STEPS
    assert found.label([]) == "pretrain epoch 2/3"
    stage = phase_run(epochs=1, rates="adam")
    assert stage.label([["0"], ["4"]]) == "stage 1/2 0 epoch 1/1"
    assert stage.label([["0", "4", "8"]]) == "stage 1/1 3 sites epoch 1/1"
    assert stage.stage is not None
    stage.stage.abandon()


def test_a_teacher_has_its_share_of_the_loss() -> None:
    images, labels = next(small_stream().epoch(0))
    moved = []
    for share in (0.0, 0.5, 1.0):
        torch.manual_seed(0)
        model, teacher = tiny_cnn().double(), tiny_cnn().double().eval().requires_grad_(False)
        phase = Phase(0, "finetune", FinetuneSettings(epochs=1, lr=0.1, momentum=0, optimizer="sgd", distill=share))
        stream = LoaderStream([(images.double(), labels)])
        before = model[10].weight.detach().clone()
        run_all(PhaseRun(phase, Engine(RuntimeSettings()), model, stream, F.cross_entropy, seed=0, teacher=teacher))
        moved.append(model[10].weight.detach() - before)
    torch.testing.assert_close(moved[1], (moved[0] + moved[2]) / 2, rtol=1e-5, atol=1e-9)
    assert not torch.allclose(moved[0], moved[2])


def test_rest_that_was_found_before_a_checkpoint_counts_after_it() -> None:
    """A stage comes to its end at the same step, wherever it was stopped on the way."""
    for stop in (2, 5, 7):
        first, second = phase_run(epochs=50, rates="adam"), phase_run(epochs=50, rates="adam")
        for found in (first, second):
            assert found.settling is not None and found.stage is not None
            found.settling.interval = 2
            found.stage.factors.rate.requires_grad_(False)  # type: ignore[attr-defined]
        while first.step < stop:
            list(islice(first.run_epoch(), stop - first.step))
        restore_phase_run(
            second, {name: tensor.clone() for name, tensor in phase_tensors(first).items()}, phase_values(first)
        )
        run_all(second)
        assert second.settled and second.step == 8
        for found in (first, second):
            assert found.stage is not None
            found.stage.abandon()
