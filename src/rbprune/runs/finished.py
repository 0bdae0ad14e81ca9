"""Opening a finished run: its settings, its plan, its summary, its dense and its pruned network."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse_weights
from torch import Tensor, nn

from rbprune import models
from rbprune.errors import DamagedError, ModelError, NumericalError
from rbprune.graph import Plan, apply_plan
from rbprune.graph.cutting.unchanged import unchanged_on_error
from rbprune.runs.folder import RunFolder
from rbprune.runs.trust import check_code
from rbprune.settings.sections import Settings
from rbprune.utils.finite import broken_numbers
from rbprune.utils.state import load_state


@dataclass(frozen=True)
class FinishedRun:
    """What a finished run left in its folder."""

    model_name: str
    settings: Settings
    plan: Plan
    summary: dict[str, Any] | None
    """None where only settings, plan and weights were kept of a run."""
    dense: nn.Module
    """The network as it was built, with fresh weights."""
    pruned: nn.Module
    """The network that came out, with its weights."""


def load(folder: str | Path, model: nn.Module) -> nn.Module:
    """Cut a fresh instance of the user's own class as the run in ``folder`` did, and load the pruned weights.

    ``model = rbprune.load("runs/demo", MyNet())``; the model keeps its class and is changed in place.
    """
    run = RunFolder(folder)
    for file in (run.plan_file, run.weights_file):
        if not file.is_file():
            raise ModelError(f"{run} has no {file.name}: it is no finished run; 'rbprune resume {run}' finishes one")
    if run.read_sums() is None:
        warnings.warn(f"{run} has no list of checksums: whether it is damaged cannot be told", stacklevel=2)
    try:
        weights = parse_weights(run.read(run.weights_file))
    except SafetensorError as error:
        raise ModelError(f"{run.weights_file} cannot be read: {error}; copy it anew, or repeat the run") from error
    plan = _read_plan(run)
    with unchanged_on_error(model):
        apply_plan(model, plan)
        _check_shapes(model, weights, run)
        broken = broken_numbers(model, weights)
        if broken is not None:
            raise NumericalError(
                f"{run.weights_file} holds no network that computes anything: {broken}; repeat the run with a lower "
                "learning rate, or take the weights from another copy"
            )
        load_state(model, weights)
    return model


def _check_shapes(model: nn.Module, weights: dict[str, Tensor], run: RunFolder) -> None:
    """Refuse weights of another network before any of them is in this one."""
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if wanted != found:
        name = min(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise ModelError(
            f"{run.weights_file} does not fit this {type(model).__name__}: {name!r} has shape "
            f"{wanted.get(name, 'none')} here and {found.get(name, 'none')} there; build the network that was pruned"
        )


def open_run(folder: str | Path, model_name: str | None = None, *, trust: bool = False) -> FinishedRun:
    """Read a finished run and build both of its networks.

    ``model_name`` is needed only where the settings of the run name no model that can be built: a run from Python
    knows the class of its model, but not how to make one. A model that is a function of the user's is built if it was
    given here, if the same user started the run, or with ``trust``.
    """
    run = RunFolder(folder)
    settings = run.read_settings()
    check_code(run, settings, trust=trust, model=model_name is None, data=False, tracker=False)
    name = model_name or settings.model.name
    dense = _build(name, settings, run)
    pruned = load(folder, copy.deepcopy(dense))
    return FinishedRun(name, settings, _read_plan(run), run.read_summary(), dense, pruned)


def _read_plan(run: RunFolder) -> Plan:
    try:
        return Plan.from_json(run.read(run.plan_file).decode("utf-8", "replace"))
    except DamagedError:
        raise
    except ModelError as error:
        raise ModelError(f"{run.plan_file}: {error}") from error


def _build(name: str, settings: Settings, run: RunFolder) -> nn.Module:
    try:
        return models.build(name, classes=settings.model.classes)
    except ModelError as error:
        hint = f"give the MODEL of the run {run}, as package.module:factory or path/file.py:factory"
        raise ModelError(f"{error}; {hint}") from error
