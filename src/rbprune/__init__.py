"""rbprune: smaller, faster convolutional networks by Recursive Bayesian Pruning.

``prune`` does it all, ``frontier`` again and again; ``Pruner`` leaves the training loop to you; ``trace`` only looks.
"""

from importlib import metadata

from rbprune import models
from rbprune.api import Result, frontier, prune
from rbprune.graph import Plan, apply_plan, register_rule, trace
from rbprune.methods import Price
from rbprune.pruner import Pruner
from rbprune.runs.finished import load

__version__: str = metadata.version("rbprune")
"""The installed version."""

__all__ = [
    "Plan",
    "Price",
    "Pruner",
    "Result",
    "apply_plan",
    "frontier",
    "load",
    "models",
    "prune",
    "register_rule",
    "trace",
]
