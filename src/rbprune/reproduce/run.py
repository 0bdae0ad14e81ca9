"""Make a table or figure of the paper anew: its runs, each done once, then what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.reproduce.experiments import Experiment, PaperRun, check_overrides
from rbprune.reproduce.page import ROUNDS, Reproduction, gather
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import dense_weights, reason, run_once
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from rbprune.utils.interrupt import Interrupted

_FILLED = ("model.classes", "model.input_shape", "model.weights")
"""Settings that a run knows only once it has begun, where nobody gave them; so are those that are "auto"."""


def reproduce(
    experiment: Experiment,
    folder: Path,
    overrides: Sequence[str],
    *,
    console: Console,
    command: list[str],
    rounds: int = ROUNDS,
) -> Reproduction:
    """Run what is missing below ``folder``, then put our figures beside the paper's; a run that fails costs one row."""
    check_overrides(experiment, overrides)
    folder.mkdir(parents=True, exist_ok=True)
    found = Reproduction(experiment)
    for run in experiment.runs:
        try:
            found.remarks += [r for r in _other_settings(run, folder, overrides) if r not in found.remarks]
            found.summaries[run.name] = _one(run, folder, overrides, console, command)
        except Interrupted:
            raise
        except Exception as error:
            found.notes.append(f"{run.name}: {reason(error, folder / f'{run.name}-failed.txt')}")
            console.print(found.notes[-1], markup=False, highlight=False, soft_wrap=True)
    gather(found, folder, rounds)
    return found


def _one(run: PaperRun, folder: Path, overrides: Sequence[str], console: Console, command: list[str]) -> dict[str, Any]:
    given = [*run.overrides, *overrides]

    def settings() -> Settings:
        title = f"dense network for {run.recipe}"
        weights = dense_weights(run.recipe, given, folder / f"{run.recipe}-dense", title=title, console=console)
        return load_recipe(run.recipe, [*given, *weights])

    return run_once(folder / run.name, settings, title=run.name, console=console, command=command)


def _other_settings(run: PaperRun, folder: Path, overrides: Sequence[str]) -> list[str]:
    """Say where runs that are there already, this one and that of its dense network, differ from what is asked for."""
    wanted = load_recipe(run.recipe, [*run.overrides, *overrides])
    found = _differences(folder / run.name, wanted, "")
    if wanted.model.weights is None:
        found += _differences(folder / f"{run.recipe}-dense", wanted, ("seed", "model.", "data.", "pretrain."))
    return found


def _differences(folder: Path, wanted: Settings, sections: str | tuple[str, ...]) -> list[str]:
    if not RunFolder(folder).is_run:
        return []
    there = RunFolder(folder).read_settings()
    before, now = flat(there.model_dump()), flat(wanted.model_dump())
    keys = [key for key in now | before if key.startswith(sections) and before.get(key) != now.get(key)]
    keys = [key for key in keys if not (now.get(key) is None and key in _FILLED) and now.get(key) != "auto"]
    changed = ", ".join(f"{key} = {before.get(key)} (asked for: {now.get(key)})" for key in keys)
    return [f"{folder.name}: made before, with {changed}"] if changed else []


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name the values of nested tables by ``section.key``.

    >>> flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3})
    {'a.b': 1, 'a.c.d': 2, 'e': 3}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
