"""A series of runs below one folder: each is done once or resumed, and the failure of one costs only that one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import RbpruneError
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from rbprune.utils.files import write_atomic


def run_once(
    out: Path, settings: Callable[[], Settings], *, title: str, console: Console, command: list[str]
) -> dict[str, Any]:
    """Return the summary of the run in ``out``: at once if it is finished, else after what is left of it.

    ``settings`` is asked only for a run that has not been started yet.
    """
    if RunFolder(out).is_run:
        return resume(out, console=console, command=command)
    chosen = settings()
    console.rule(title)
    return start(chosen, out, console=console, command=command)


def dense_weights(recipe: str, overrides: Sequence[str], out: Path, *, title: str, console: Console) -> list[str]:
    """Settings that name the dense network: none if the recipe has weights, else those trained once into ``out``."""
    if load_recipe(recipe, overrides).model.weights is not None:
        return []
    run_once(out, lambda: load_recipe(recipe, [*overrides, "task=train"]), title=title, console=console, command=[])
    return [f"model.weights={RunFolder(out).weights_file}"]


def computing_like(settings: Settings, run: RunFolder) -> Settings:
    """The settings with the precision and memory layout that another run decided on, where they leave them open.

    Runs that are compared shall not differ because each measured for itself; a run that is not there changes nothing.
    """
    if not run.is_run:
        return settings
    decided = run.read_settings().runtime
    names = [name for name in ("precision", "channels_last") if getattr(settings.runtime, name) == "auto"]
    changes = {name: getattr(decided, name) for name in names}
    return settings.model_copy(update={"runtime": settings.runtime.model_copy(update=changes)})


def reason(error: Exception, path: Path) -> str:
    """Say what went wrong in one line; the traceback of an error that nobody foresaw goes to ``path``."""
    if isinstance(error, RbpruneError):
        return str(error)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {error} (see {path})"
