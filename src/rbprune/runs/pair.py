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
from rbprune.graph import trace
from rbprune.measure.count import kept_widths
from rbprune.runs.finished import open_run


@dataclass(frozen=True)
class Pair:
    """Two networks, the shape of one example, and dense / pruned MACs for it."""

    name: str
    dense: nn.Module
    pruned: nn.Module
    shape: tuple[int, ...]
    macs_ratio: float


def kept_pair(name: str, keep: str, shape: Sequence[int] | None = None) -> Pair:
    """Build a model by name, and the same one cut to the widths that ``rbprune count --keep`` counts.

    >>> pair = kept_pair("lenet5", "5-10-76")
    >>> pair.pruned.conv1.out_channels, pair.dense.conv1.out_channels, round(pair.macs_ratio, 1)
    (5, 20, 13.9)
    """
    dense = models.build(name)
    x = models.example_input(name, dense, None if shape is None else tuple(shape))
    pruned = copy.deepcopy(dense)
    graph = trace(pruned, x)
    macs = graph.macs()
    graph.remove({name: range(width, graph[name].channels) for name, width in kept_widths(graph, keep).items()})
    return Pair(name, dense, pruned, tuple(x.shape[1:]), macs / graph.macs())


def run_pair(
    folder: str | Path, name: str | None = None, shape: Sequence[int] | None = None, *, trust: bool = False
) -> Pair:
    """Open the dense and the pruned network of a finished run.

    ``name`` is the model if the settings of the run name none that can be built, ``shape`` that of an example if it
    is not the run's own, and ``trust`` lets code run that only the folder names.
    """
    run = open_run(folder, name, trust=trust)
    given = shape or run.settings.model.input_shape
    x = models.example_input(run.model_name, run.dense, tuple(given) if given else None)
    macs = [trace(model, x).macs() for model in (run.dense, run.pruned)]
    return Pair(run.model_name, run.dense, run.pruned, tuple(x.shape[1:]), macs[0] / macs[1])
