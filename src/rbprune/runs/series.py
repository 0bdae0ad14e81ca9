"""A series of runs below one folder: each is done once or resumed, and the failure of one costs only that one."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import ConfigError, RbpruneError
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import PruneSettings, Settings
from rbprune.utils.files import write_atomic
from rbprune.utils.plain_file import read_table


def run_once(
    out: Path,
    settings: Callable[[], Settings],
    *,
    title: str,
    console: Console,
    command: list[str],
    trust: bool = False,
) -> dict[str, Any]:
    """Return the summary of the run in ``out``: at once if it is finished, else after what is left of it.

    ``settings`` is asked only for a run that has not been started yet; ``trust`` is for one that was: see ``resume``.
    """
    run = RunFolder(out)
    if run.is_run:
        return resume(out, console=console, command=command, trust=trust)
    for left in [each for each in out.glob(".*.tmp") if _half_written(each)]:
        left.unlink()  # of a process that was killed before this became a run
    chosen = settings()
    console.rule(title)
    return start(chosen, out, console=console, command=command)


def claim(folder: Path, request: Mapping[str, Any], kind: str, earlier: Mapping[str, Any] | None = None) -> None:
    """Write what is asked for into the folder of a series, or refuse a folder that was made for something else.

    ``kind`` is the word for the series, such as ``frontier``; ``earlier`` holds what was asked for without being said
    when there was no choice yet. What a kill left half written is no obstacle.
    """
    path, fixed = folder / "request.json", json.loads(json.dumps(request))
    if path.is_file():
        before = {**(earlier or {}), **read_table(path, ConfigError)}
        changed = [key for key in fixed if before.get(key) != fixed[key]]
        if changed:
            raise ConfigError(
                f"{folder} holds a {kind} with another {changed[0]} ({before.get(changed[0])!r}, now "
                f"{fixed[changed[0]]!r}); choose another --out"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(not _half_written(each) for each in folder.iterdir())):
        raise ConfigError(f"{folder} exists and holds no {kind}; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(fixed, indent=2))


def _half_written(path: Path) -> bool:
    """Whether a file is what ``write_atomic`` leaves when its process is killed."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def dense_weights(recipe: str, overrides: Sequence[str], out: Path, *, title: str, console: Console) -> list[str]:
    """Settings that name the dense network: none if the recipe has weights, else those trained once into ``out``."""
    if load_recipe(recipe, overrides).model.weights is not None:
        return []
    run_once(out, lambda: training_only(load_recipe(recipe, overrides)), title=title, console=console, command=[])
    return [f"model.weights={RunFolder(out).weights_file}"]


def training_only(settings: Settings) -> Settings:
    """The settings of a run that trains the dense network; how to prune it does not matter and need not be told."""
    return settings.model_copy(update={"task": "train", "prune": PruneSettings()})


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
