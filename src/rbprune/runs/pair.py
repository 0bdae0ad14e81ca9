"""A dense network and its pruned self, to be timed against each other.

Weights are random where they do not matter: time does not depend on them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from rbprune import models
from rbprune.errors import ConfigError, ModelError
from rbprune.graph import trace
from rbprune.measure.count import count_kept
from rbprune.runs import artifact
from rbprune.settings.recipe import build_config, read_toml
from rbprune.settings.sections import Config


@dataclass(frozen=True)
class Pair:
    """Two networks, the shape of one example, and dense / pruned MACs for it."""

    name: str
    dense: nn.Module
    pruned: nn.Module
    shape: tuple[int, ...]
    macs_ratio: float


def kept_pair(name: str, keep: str, shape: Sequence[int] | None = None) -> Pair:
    """A model by name, and the same one cut to these widths as ``rbprune count --keep`` does.

    >>> pair = kept_pair("lenet5", "5-10-76")
    >>> pair.pruned.conv1.out_channels, pair.dense.conv1.out_channels, round(pair.macs_ratio, 1)
    (5, 20, 13.9)
    """
    dense = models.build(name)
    x = models.example_input(name, dense, None if shape is None else tuple(shape))
    pruned = copy.deepcopy(dense)
    count = count_kept(trace(pruned, x), keep)
    return Pair(name, dense, pruned, tuple(x.shape[1:]), count.total.macs_ratio)


def run_pair(folder: str | Path, name: str | None = None, shape: Sequence[int] | None = None) -> Pair:
    """The dense and the pruned network of a finished run; ``name`` if its config.toml names none that can be built."""
    folder = Path(folder)
    if not (folder / "config.toml").is_file():
        raise ConfigError(f"{folder} is no run folder (it has no config.toml); give one that 'rbprune prune' wrote")
    config = build_config(read_toml(folder / "config.toml"), where=str(folder / "config.toml"), applied=True)
    name = name or config.model.name
    dense = _build(name, config, folder)
    pruned = artifact.load(folder, copy.deepcopy(dense))
    given = shape or config.model.input_shape
    x = models.example_input(name, dense, tuple(given) if given else None)
    macs = [trace(model, x).macs() for model in (dense, pruned)]
    return Pair(name, dense, pruned, tuple(x.shape[1:]), macs[0] / macs[1])


def _build(name: str, config: Config, folder: Path) -> nn.Module:
    try:
        return models.build(name, classes=config.model.classes)
    except ModelError as error:
        hint = f"give the MODEL of the run {folder}, as package.module:factory or path/file.py:factory"
        raise ModelError(f"{error}; {hint}") from error
