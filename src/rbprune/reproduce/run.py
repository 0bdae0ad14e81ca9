"""Make a table or figure of the paper anew: its runs, each done once, then what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import ConfigError
from rbprune.reproduce.experiments import Experiment, PaperRun, check_overrides
from rbprune.reproduce.page import ROUNDS, Reproduction, gather
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import computing_like, dense_weights, reason, run_once
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from rbprune.utils.interrupt import Interrupted

_FILLED = ("model.classes", "model.input_shape", "model.weights", "budget", "prune.macs_ratio")
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
            found.summaries[run.name] = _one(run, folder, overrides, found.summaries, console, command)
        except Interrupted:
            raise
        except Exception as error:
            found.notes.append(f"{run.name}: {reason(error, folder / f'{run.name}-failed.txt')}")
            console.print(found.notes[-1], markup=False, highlight=False, soft_wrap=True)
    gather(found, folder, rounds)
    return found


def _one(
    run: PaperRun,
    folder: Path,
    overrides: Sequence[str],
    done: Mapping[str, dict[str, Any]],
    console: Console,
    command: list[str],
) -> dict[str, Any]:
    given = [*run.overrides, *overrides]

    def settings() -> Settings:
        own = [*given, *equal_terms(run, overrides, done)]
        dense, title = folder / f"{run.recipe}-dense", f"dense network for {run.recipe}"
        weights = dense_weights(run.recipe, overrides, dense, title=title, console=console)
        found = load_recipe(run.recipe, [*own, *weights])
        return found if run.beside is None else computing_like(found, RunFolder(folder / run.beside))

    return run_once(folder / run.name, settings, title=run.name, console=console, command=command)


def equal_terms(run: PaperRun, overrides: Sequence[str], done: Mapping[str, dict[str, Any]]) -> list[str]:
    """Settings by which a run meets the one that it stands beside: its cost, unless a budget is given, and its MACs."""
    if run.beside is None:
        return []
    if run.beside not in done:
        raise ConfigError(f"{run.beside} failed, so nobody knows what {run.label!r} may spend")
    reference = done[run.beside]
    spent = reference["dense_epochs"]
    has_budget = any(text.partition("=")[0].strip() == "budget" for text in overrides)
    found = [] if has_budget else [f"budget={spent['prune'] + spent['finetune']}"]
    return [*found, f"prune.macs_ratio={reference['macs_ratio']}"] if run.same_macs else found


def _other_settings(run: PaperRun, folder: Path, overrides: Sequence[str]) -> list[str]:
    """Say where runs that are there already, this one and that of its dense network, differ from what is asked for."""
    wanted = load_recipe(run.recipe, [*run.overrides, *overrides])
    found = _differences(folder / run.name, wanted, "")
    if wanted.model.weights is None:
        shared = load_recipe(run.recipe, overrides)  # rows of other seeds start from the same dense network
        found += _differences(folder / f"{run.recipe}-dense", shared, ("seed", "model.", "data.", "pretrain."))
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
