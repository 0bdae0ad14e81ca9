"""Several runs below one folder: each done once or taken up where it stopped, each failure told by itself."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import RbpruneError
from rbprune.runs.session import resume, start
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Config
from rbprune.utils.files import write_atomic


def run_once(
    out: Path, settings: Callable[[], Config], *, title: str, console: Console, command: list[str]
) -> dict[str, Any]:
    """The summary of the run in ``out``: at once if it is finished, else after what is left of it."""
    if (out / "config.toml").is_file():
        return resume(out, console=console, command=command)
    config = settings()
    console.rule(title)
    return start(config, out, console=console, command=command)


def dense_weights(recipe: str, overrides: Sequence[str], out: Path, *, title: str, console: Console) -> list[str]:
    """Overrides that name the dense network: none if the recipe has weights, else those trained once into ``out``."""
    if load_recipe(recipe, overrides).model.weights is not None:
        return []
    run_once(out, lambda: load_recipe(recipe, [*overrides, "task=train"]), title=title, console=console, command=[])
    return [f"model.weights={out / 'model.safetensors'}"]


def reason(error: Exception, path: Path) -> str:
    """What went wrong, in one line; of what nobody foresaw, the whole story goes to ``path``."""
    if isinstance(error, RbpruneError):
        return str(error)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {error} (see {path})"
