"""``rbprune prune``."""

from __future__ import annotations

from rbprune.cli.options import FailAbove, Json, Out, Set, command, show_summary
from rbprune.runs.within_error import launch
from rbprune.settings.recipe import load_recipe


def prune(recipe: str, *, out: Out, set: Set = [], fail_above: FailAbove = None, json: Json = False) -> None:  # noqa: B006
    """Prune a trained network and fine-tune it.

    Parameters
    ----------
    recipe
        A shipped recipe (such as lenet5-mnist) or a TOML file.
    """
    show_summary(launch(load_recipe(recipe, set), out, command=command()), out, json, fail_above)
