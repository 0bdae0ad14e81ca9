"""What training costs, and how a budget is divided."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rbprune import Pruner
from rbprune.graph.cost import PARAMS
from rbprune.methods.cp import CPStage
from rbprune.methods.curvature import EVERY, UPDATE, update_interval
from rbprune.methods.ranking import L1, Taylor
from rbprune.methods.thinet import ThiNetStage
from rbprune.settings.recipe import build_settings, to_toml
from rbprune.settings.sections import RECOVERY_EPOCHS
from rbprune.train.budget import (
    FORWARD,
    PRUNING_SHARE,
    Account,
    forward_cost,
    observation_cost,
    stage_epochs,
    with_budget,
)
from rbprune.train.phase import Phase
from rbprune.train.state import RunState
from tests.networks import tiny_cnn
from tests.train.small import small_settings

STEPS, OVERHEAD = 1000, UPDATE / EVERY
"""Of an epoch, and what the curvature adds to a step of a stage as long."""


def account(tables: dict[str, Any] | None = None) -> Account:
    settings = small_settings(tables)
    pruner = Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=64, settings=settings.prune)
    return Account(settings, pruner, RunState())


def phases(found: Account) -> tuple[Phase, Phase, Phase]:
    """Both stages and the fine-tuning."""
    first = Phase(0, "prune", found.settings.prune, 0)
    return first, replace(first, number=1, stage=1), Phase(2, "finetune", found.settings.finetune)


def test_the_share_follows_the_cuts_and_the_cost() -> None:
    macs = account()
    params = Account(macs.settings, macs.pruner, macs.state, PARAMS)
    graph = macs.pruner.graph
    before = graph.macs(), graph.params()
    assert macs.share() == params.share() == 1
    graph.remove({"4": range(6)})
    assert macs.share() == graph.macs() / before[0]
    assert params.share() == graph.params() / before[1] != macs.share()


def test_what_is_spent_is_booked_on_its_kind_and_adds_up() -> None:
    found = account()
    found.spend("pretrain", 2.0)
    found.spend("prune", 0.5)
    found.spend("prune", 0.25)
    assert found.state.cost == {"pretrain": 2.0, "prune": 0.75, "finetune": 0.0}
    assert found.total() == 2.75


def test_an_epoch_costs_its_share_what_the_method_adds_and_the_teacher() -> None:
    found = account({"prune": {"rates": "fixed-point"}, "finetune": {"distill": 0.5}})
    stage, _, finetune = phases(found)
    assert found.epoch(stage, teacher=True, steps=STEPS) == pytest.approx(1 + OVERHEAD), (
        "only fine-tuning asks the teacher"
    )
    assert found.epoch(finetune, teacher=True, steps=STEPS) == pytest.approx(1 + FORWARD)
    assert found.epoch(finetune, teacher=False, steps=STEPS) == 1
    found.pruner.graph.remove({"0": range(3)})
    share = found.share()
    assert found.epoch(stage, teacher=False, steps=STEPS) == pytest.approx(share * (1 + OVERHEAD))
    assert found.epoch(finetune, teacher=True, steps=STEPS) == pytest.approx(share + FORWARD), "the teacher stays dense"


def test_without_a_budget_phases_last_as_the_settings_say() -> None:
    found = account({"prune": {"epochs": 1.5}, "finetune": {"epochs": 7}})
    assert [found.epochs(phase, teacher=True, steps=STEPS) for phase in phases(found)] == [1.5, 1.5, 7]


@pytest.mark.parametrize("method", ["thinet", "cp"])
def test_a_method_that_does_not_train_has_nothing_to_do_before_its_first_cut(method: str) -> None:
    found = account({"prune": {"method": method, "macs_ratio": 1.2, "epochs": 2}})
    assert [found.epochs(phase, teacher=True, steps=STEPS) for phase in phases(found)][:2] == [0.0, 2]


def test_a_budget_shortens_stages_and_leaves_the_rest_to_fine_tuning() -> None:
    found = account({"budget": 3, "prune": {"epochs": 4, "rates": "adam"}})
    first, second, finetune = phases(found)
    each = PRUNING_SHARE * 3 / 2
    assert (
        found.epochs(first, teacher=False, steps=STEPS)
        == found.epochs(second, teacher=False, steps=STEPS)
        == pytest.approx(each)
    )
    found.spend("prune", 0.9)
    found.pruner.graph.remove({"4": range(6)})
    wanted = (3 - 0.9) / found.share()
    assert found.epochs(finetune, teacher=False, steps=STEPS) == pytest.approx(wanted)
    found.spend("finetune", 1.0)
    assert found.epochs(finetune, teacher=False, steps=STEPS) == pytest.approx(wanted), (
        "decided once, also for a resumed run"
    )
    assert found.state.finetune_epochs == pytest.approx(wanted)


def test_a_budget_that_is_spent_leaves_no_fine_tuning() -> None:
    found = account({"budget": 1})
    found.spend("prune", 1.5)
    assert found.epochs(phases(found)[2], teacher=False, steps=STEPS) == 0


def test_stages_count_what_an_epoch_of_theirs_costs_at_most() -> None:
    found = account({"budget": 3, "prune": {"epochs": 4, "rates": "fixed-point", "distill": 0.5}})
    most = 1 + OVERHEAD + FORWARD
    assert found.epochs(phases(found)[0], teacher=True, steps=STEPS) == pytest.approx(PRUNING_SHARE * 3 / 2 / most)
    assert stage_epochs(0.1, 2, 3.0) == 0.1, "a budget makes nothing longer"


def test_a_short_stage_looks_more_often_and_pays_for_it() -> None:
    found = account({"budget": 3, "prune": {"epochs": 4, "rates": "fixed-point"}})
    stage = phases(found)[0]
    assert found.epoch(stage, teacher=False, steps=20) == pytest.approx(1 + UPDATE / 2)
    few = 40  # steps of an epoch: a stage has some 24, and looks after every second one
    length = found.epochs(stage, teacher=False, steps=few)
    assert length == pytest.approx(PRUNING_SHARE * 3 / 2 / (1 + UPDATE / update_interval(24)))


def test_observation_counts_by_what_is_computed() -> None:
    assert observation_cost(L1, 5, 10) == 0, "it looks at no data"
    assert observation_cost(Taylor, 5, 10, 0.5) == pytest.approx(0.5 * 0.5), "steps of training"
    assert observation_cost(ThiNetStage, 5, 10, 0.5) == pytest.approx(0.5 * 0.5 / 3), "forward passes"
    assert observation_cost(CPStage, 5, 10, 0.5) == pytest.approx(0.5 * 0.5 / 3 + 0.5 / 3), "and those of the dense"
    assert observation_cost(Taylor, 50, 10) == 1, "an epoch has no more batches"
    assert forward_cost(50, 10, 0.5) == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("normalises", [True, False])
@pytest.mark.parametrize(("rates", "overhead"), [("auto", OVERHEAD), ("adam", 0.0)])
def test_where_nobody_says_how_long_every_method_may_spend_what_the_default_one_may(
    normalises: bool, rates: str, overhead: float
) -> None:
    """Ten steps an epoch in a stage, and 250 in fine-tuning, where five epochs are more than a thousand steps."""
    model = tiny_cnn()
    if not normalises:
        model[1], model[5] = torch.nn.Identity(), torch.nn.Identity()
    found = {}
    for method, ratio in {"rbp": None, "ibp": None, "sbp": None, "uniform": 1.5, "thinet": 1.5}.items():
        prune = {"method": method, "rates": rates, "epochs": 20, "macs_ratio": ratio}
        settings = small_settings({"finetune": {"epochs": None, "batch_size": 4}, "prune": prune})
        example = torch.zeros(1, 1, 8, 8)
        pruner = Pruner(model, example, dataset_size=64, loss_fn=F.cross_entropy, settings=settings.prune)
        settings = settings.model_copy(update={"prune": pruner.settings})
        found[method] = with_budget(settings, pruner, {128: 10, 4: 250}.__getitem__)
    recalibration = 3 / 10 / 3 if normalises else 0
    check = 6 * 4 / 10 / 3  # six passes over four of ten batches, forwards
    wanted = 2 * (20 * (1 + overhead) + recalibration + check) + RECOVERY_EPOCHS
    assert [settings.budget for settings in found.values()] == [pytest.approx(wanted)] * 5
    assert {settings.pruning_share for settings in found.values()} == {1.0}
    assert {settings.finetune.epochs for settings in found.values()} == {RECOVERY_EPOCHS}


def test_what_was_said_about_the_length_stays() -> None:
    for tables in ({"finetune": {"epochs": 2}}, {"budget": 3.0, "finetune": {"epochs": None}}, {"task": "train"}):
        found = account(tables)
        decided = with_budget(found.settings, found.pruner, lambda batch_size: 4)
        assert decided.budget == tables.get("budget")
        assert decided.pruning_share is None
        assert decided.finetune.epochs == {"finetune": 2, "budget": 250, "task": 1}[next(iter(tables))]


def test_a_share_for_pruning_is_kept_to() -> None:
    found = account({"budget": 3, "pruning_share": 0.1, "prune": {"epochs": 4, "rates": "adam"}})
    assert found.epochs(phases(found)[0], teacher=False, steps=STEPS) == pytest.approx(0.1 * 3 / 2)
    is_open = account({"pruning_share": 0.1, "finetune": {"epochs": None}})
    assert with_budget(is_open.settings, is_open.pruner, lambda batch_size: 4).pruning_share == 0.1


def test_what_was_decided_is_not_decided_again() -> None:
    """A resumed run reads its settings from config.toml, where nothing is open any more."""
    found = account({"finetune": {"epochs": None}})
    decided = with_budget(found.settings, found.pruner, lambda batch_size: 4)
    read = build_settings(tomllib.loads(to_toml(decided)))
    assert decided.budget is not None and read.pruning_share == 1
    assert with_budget(read, found.pruner, lambda batch_size: 7) == read == decided
