"""The settings of the runs that a search consists of."""

from __future__ import annotations

import pytest

from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS, PARAMS
from rbprune.runs.step_settings import search_cost, searches, settings_of_recovery, settings_of_step
from rbprune.settings.recipe import load_recipe

SEARCH = ("prune.max_error_rise=1", "finetune.epochs=8", "model.weights=a.safetensors")


def test_only_pruning_with_a_limit_on_the_error_is_a_search() -> None:
    assert searches(load_recipe("demo", SEARCH))
    assert not searches(load_recipe("demo", [*SEARCH, "task=train"]))
    assert not searches(load_recipe("demo"))


def test_the_cost_is_that_of_the_price() -> None:
    assert search_cost(load_recipe("demo", SEARCH)) is MACS
    assert search_cost(load_recipe("demo", [*SEARCH, "prune.price={nats_per_mparam=9}"])) is PARAMS


def test_a_step_is_told_a_ratio_and_recovers_for_a_quarter() -> None:
    step = settings_of_step(load_recipe("demo", SEARCH), PARAMS, 1.5)
    assert (step.prune.params_ratio, step.prune.max_error_rise, step.finetune.epochs) == (1.5, None, 2)
    left_open = load_recipe("demo", [*SEARCH, "finetune.epochs=none"])
    assert settings_of_step(left_open, MACS, 1.5).finetune.epochs is None
    with pytest.raises(ConfigError, match="budget = 3 is what one run may take"):
        settings_of_step(load_recipe("demo", [*SEARCH, "budget=3"]), MACS, 1.5)


def test_the_recovery_trains_as_the_fine_tuning_says_and_prunes_nothing() -> None:
    settings = load_recipe("demo", [*SEARCH, "finetune.lr=0.5", "finetune.distill=0.3", "prune.method=uniform"])
    found = settings_of_recovery(settings, settings.finetune.changed(epochs=2))
    assert found is not None and found.pretrain is not None
    assert (found.task, found.pretrain.epochs, found.pretrain.lr) == ("train", 8, 0.5)
    assert found.pretrain.decay == settings.finetune.decay and found.prune.method == "rbp"
    left_open = load_recipe("demo", [*SEARCH, "finetune.epochs=none"])
    decided = settings_of_recovery(left_open, left_open.finetune.changed(epochs=5))
    assert decided is not None and decided.pretrain is not None and decided.pretrain.epochs == 5
    assert settings_of_recovery(load_recipe("demo", [*SEARCH, "finetune.epochs=0"]), settings.finetune) is None
