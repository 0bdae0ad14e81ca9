"""What every stage of every method is told."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

import rbprune
from rbprune import Price
from rbprune.bayes import dirac
from rbprune.errors import ConfigError
from rbprune.graph.cost import COSTS, MACS, PARAMS
from rbprune.methods.rbp import DiracStage
from rbprune.methods.settings import ADAM_RATE, FIXED_POINT_STEP, PruningSettings
from rbprune.settings.recipe import load_recipe
from rbprune.train.runner import Runner
from tests.networks import tiny_cnn


def test_nothing_said_is_the_paper_but_for_what_the_network_decides() -> None:
    found = PruningSettings()
    assert (found.method, found.rates, found.rate_init) == ("rbp", "auto", dirac.RATE_INIT)
    assert (found.price, found.rate_lr, found.noise, found.threshold, found.ratio, found.only) == (None,) * 6
    assert (found.keep, found.options) == ([], {})


def test_the_ratio_names_the_cost_that_falls() -> None:
    assert PruningSettings(macs_ratio=2).ratio == (MACS, 2.0)
    assert PruningSettings(params_ratio=3).ratio == (PARAMS, 3.0)


def test_two_ratios_cannot_both_be_met() -> None:
    with pytest.raises(ConfigError, match="macs_ratio and params_ratio cannot both be met exactly: give one of them"):
        PruningSettings(macs_ratio=2, params_ratio=2)
    with pytest.raises(ConfigError, match="cannot both be met"):
        PruningSettings(macs_ratio=2).changed(params_ratio=2)
    moved = PruningSettings(macs_ratio=2).changed(macs_ratio=None, params_ratio=2)
    assert moved.ratio == (PARAMS, 2.0)


def test_every_cost_has_a_ratio_of_its_own() -> None:
    assert {f"{name}_ratio" for name in COSTS} <= set(PruningSettings.model_fields)


@pytest.mark.parametrize(
    ("rates", "given", "wanted"),
    [
        ("adam", None, ADAM_RATE),
        ("fixed-point", None, FIXED_POINT_STEP),
        ("auto", None, FIXED_POINT_STEP),
        ("adam", 0.3, 0.3),
        ("fixed-point", 0.3, 0.3),
    ],
)
def test_the_step_of_the_rates_follows_the_way_they_are_found(rates: str, given: float | None, wanted: float) -> None:
    assert PruningSettings(rates=rates, rate_lr=given).step_size == wanted


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"macs_ratio": 0.5}, "macs_ratio = 0.5: .*greater than or equal to 1"),
        ({"params_ratio": 0}, "params_ratio = 0: .*greater than or equal to 1"),
        ({"rate_lr": 0}, "rate_lr = 0: .*greater than 0"),
        ({"rate_init": 1}, "rate_init = 1: .*less than 1"),
        ({"least": 1.5}, "least = 1.5: .*less than or equal to 1"),
        ({"rates": "sgd"}, "rates = 'sgd': .*'auto', 'adam' or 'fixed-point'"),
        ({"noise": "row"}, "noise = 'row'"),
        ({"options": {"gamma": "big"}}, "options.gamma = 'big': .*valid number"),
        ({"price": {"nats": 0}}, "price.nats = 0: .*greater than 0"),
        ({"price": {"nat": 3}}, "price.nat: unknown key; did you mean 'nats'"),
        ({"treshold": 0.5}, "treshold: unknown key; did you mean 'threshold'"),
    ],
)
def test_mistakes_are_refused_when_made_and_when_changed(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        PruningSettings(**values)
    with pytest.raises(ConfigError, match=complaint):
        PruningSettings(method="ibp").changed(**values)


def test_a_change_keeps_everything_else() -> None:
    old = PruningSettings(method="sbp", price=Price(nats=7), only=["a"], options={"kl_weight": 2.0})
    new = old.changed(threshold=2.0)
    assert new.price is old.price
    assert new.model_dump() == {**old.model_dump(), "threshold": 2.0}


def test_settings_of_two_stages_do_not_share_their_tables() -> None:
    first, second = PruningSettings(), PruningSettings()
    first.options["gamma"] = 1.0
    assert second.options == {}


PACKAGE = Path(rbprune.__file__).parent


def files_naming(setting: str) -> set[str]:
    """Source files in which a setting is declared, read, passed on, or spelled as a string."""

    def names(node: ast.AST) -> Iterator[object]:
        yield from (getattr(node, field, None) for field in ("attr", "arg", "value"))
        yield node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None

    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in texts.items() if setting in text}
    return {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in trees.items()
        if any(setting in names(node) for node in ast.walk(tree))
    }


@pytest.mark.parametrize(
    ("setting", "files"),
    [
        ("rate_init", {"methods/settings.py", "methods/rate_stage.py"}),
        ("downsampling", {"methods/settings.py", "methods/registry.py"}),
        ("settle", {"settings/sections.py", "train/phase.py"}),
    ],
)
def test_two_files_know_a_setting_the_one_that_declares_it_and_the_one_that_uses_it(
    setting: str, files: set[str]
) -> None:
    """As docs/architecture.md promises to whoever adds one: no list of settings is kept anywhere else."""
    assert files_naming(setting) == files


def test_a_setting_reaches_the_stage_through_every_door(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(Runner, "run", lambda self: seen.append(self.pruner.settings.rate_init) or {})
    x = torch.zeros(2, 1, 8, 8)
    batches, quiet = [(x, torch.zeros(2, dtype=torch.long))], Console(quiet=True)
    for options in ({"prune": {"rate_init": 0.25}}, ["prune.rate_init=0.25"]):
        rbprune.prune(tiny_cnn(), batches, example_inputs=x, options=options, console=quiet)
    seen.append(load_recipe("demo", ["prune.rate_init=0.25"]).prune.rate_init)
    stage = rbprune.Pruner(tiny_cnn(), x, dataset_size=9, rate_init=0.25).stage(0)
    assert isinstance(stage, DiracStage)
    assert seen == [0.25] * 3
    assert bool((stage.rates["0"] == 0.25).all())
    stage.abandon()
