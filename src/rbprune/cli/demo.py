"""``rbprune demo``."""

from __future__ import annotations

import shutil
from pathlib import Path

from rbprune.cli.options import Json, Out, Set, command, show_summary
from rbprune.recipe import load_recipe
from rbprune.session import start


def demo(*, out: Out = Path("runs/demo"), set: Set = [], json: Json = False) -> None:  # noqa: B006
    """Train, prune and fine-tune a small network on data that comes with the package (about a minute).

    A finished earlier demo in the same folder is replaced.
    """
    if (out / "summary.json").is_file() and (out / "config.toml").is_file():
        shutil.rmtree(out)
    show_summary(start(load_recipe("demo", set), out, command=command()), out, json)
