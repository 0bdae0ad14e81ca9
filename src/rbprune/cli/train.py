"""``rbprune train``."""

from __future__ import annotations

from rbprune.cli.options import Json, Out, Set, command, show_summary
from rbprune.errors import ConfigError
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe


def train(recipe: str, *, out: Out, set: Set = [], json: Json = False) -> None:  # noqa: B006
    """Train the dense network of a recipe; its weights end in OUT/model.safetensors.

    With --set model.weights=FILE it goes on from those.

    Parameters
    ----------
    recipe
        A shipped recipe (such as lenet5-mnist) or a TOML file with a [pretrain] section.
    """
    settings = load_recipe(recipe, ["task=train", *set])
    if settings.pretrain is None:
        raise ConfigError(f"recipe {recipe!r} has no [pretrain] section; it prunes a network that is trained already")
    show_summary(start(settings, out, command=command()), out, json)
