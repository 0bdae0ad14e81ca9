"""Which runs stand behind each table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rbprune
from rbprune.errors import ConfigError
from rbprune.reproduce.experiments import EXPERIMENTS, OTHER_RIVALS, PAPER_RIVALS, check_overrides, find_experiment
from rbprune.settings.recipe import load_recipe


@pytest.mark.parametrize("name", [name for name, found in EXPERIMENTS.items() if found.runs])
def test_every_recipe_behind_the_paper_is_valid(name: str) -> None:
    for run in EXPERIMENTS[name].runs:
        config = load_recipe(run.recipe, run.overrides)
        assert config.prune.method in ("rbp", "rrbp", *PAPER_RIVALS, *OTHER_RIVALS)
        assert load_recipe(run.recipe, [*run.overrides, "preset=paper"]).finetune.decay == "step"


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cifar10'"):
        find_experiment("cifar-10")


@pytest.mark.parametrize(
    ("name", "override", "complaint"),
    [
        ("cifar10", "prune.method=l1", "has a row for each prune.method; .*rbprune compare vgg16-cifar10"),
        ("gpu", "seed=1", "'gpu' has no runs with settings; leave out --set seed=1"),
        ("cifar10", "prune.epocs=1", "unknown key"),
    ],
)
def test_settings_that_the_table_decides_are_refused(name: str, override: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_overrides(EXPERIMENTS[name], [override])


def test_it_is_an_application_that_only_the_command_line_knows() -> None:
    sources = Path(rbprune.__file__).parent
    outside = [path for path in sources.rglob("*.py") if path.relative_to(sources).parts[0] not in ("reproduce", "cli")]
    assert outside
    assert not [
        path for path in outside if re.search(r"rbprune\.reproduce|from rbprune import .*reproduce", path.read_text())
    ]
