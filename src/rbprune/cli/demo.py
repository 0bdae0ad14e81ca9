"""``rbprune demo``."""

from __future__ import annotations

import shutil
from pathlib import Path

from rbprune.cli.options import Json, Out, Set, command, show_summary
from rbprune.runs.session import start
from rbprune.settings.recipe import load_recipe, read_toml


def demo(*, out: Out = Path("runs/demo"), set: Set = [], json: Json = False) -> None:  # noqa: B006
    """Train, prune and fine-tune a small network on data that comes with the package (about a minute).

    A finished earlier demo in the same folder is replaced.
    """
    config = load_recipe("demo", set)
    if _is_finished_demo(out):
        shutil.rmtree(out)
    show_summary(start(config, out, command=command()), out, json)


def _is_finished_demo(folder: Path) -> bool:
    """Nobody else's run is ever replaced."""
    if not (folder / "summary.json").is_file() or not (folder / "config.toml").is_file():
        return False
    found = read_toml(folder / "config.toml")
    return found.get("model", {}).get("name") == "lenet5" and found.get("data", {}).get("name") == "mnist-subset"
