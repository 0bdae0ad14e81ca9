"""``rbprune demo``."""

from __future__ import annotations

import shutil
from pathlib import Path

from rbprune.cli.options import Json, Out, Set, command, show_summary
from rbprune.runs.folder import RunFolder
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe, read_toml


def demo(*, out: Out = Path("runs/demo"), set: Set = [], json: Json = False) -> None:  # noqa: B006
    """Train, prune and fine-tune a small network on data that comes with the package (about a minute).

    A finished earlier demo in the same folder is replaced.
    """
    settings = load_recipe("demo", set)
    if _is_finished_demo(out):
        shutil.rmtree(out)
    show_summary(start(settings, out, command=command()), out, json)


def _is_finished_demo(folder: Path) -> bool:
    """Tell a finished demo from any other run, which is never replaced."""
    run = RunFolder(folder)
    if not run.is_finished:
        return False
    found = read_toml(run.settings_file)
    return found.get("model", {}).get("name") == "lenet5" and found.get("data", {}).get("name") == "mnist-subset"
