"""rbprune: smaller, faster convolutional networks by Recursive Bayesian Pruning.

``prune`` does it all, ``frontier`` again and again; ``Pruner`` leaves the training loop to you; ``trace`` only looks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rbprune import models
    from rbprune.api import Result, frontier, prune
    from rbprune.graph import Plan, apply_plan, register_rule, trace
    from rbprune.methods import Price
    from rbprune.pruner import Pruner
    from rbprune.runs.finished import load

    __version__: str

_HOMES = {
    "Plan": "rbprune.graph",
    "Price": "rbprune.methods",
    "Pruner": "rbprune.pruner",
    "Result": "rbprune.api",
    "apply_plan": "rbprune.graph",
    "frontier": "rbprune.api",
    "load": "rbprune.runs.finished",
    "prune": "rbprune.api",
    "register_rule": "rbprune.graph",
    "trace": "rbprune.graph",
}
"""Where each public name is defined; it is imported when it is first asked for, so that ``rbprune --version`` does not
wait for PyTorch."""

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    elif name == "models":
        found = import_module("rbprune.models")
    elif name == "__version__":
        from importlib import metadata

        found = metadata.version("rbprune")
    else:
        raise AttributeError(f"module 'rbprune' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
