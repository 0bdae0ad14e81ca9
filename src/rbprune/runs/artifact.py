"""The pruned network on disk: weights and plan, no pickle."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from rbprune.errors import ModelError
from rbprune.graph import Plan, apply_plan
from rbprune.utils.files import write_atomic
from rbprune.utils.state import load_state, state_tensors

WEIGHTS, PLAN = "model.safetensors", "plan.json"


def save_model(folder: Path, model: nn.Module, plan: Plan) -> None:
    """Write ``model.safetensors`` and ``plan.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / WEIGHTS, save(state_tensors(model)))
    write_atomic(folder / PLAN, plan.to_json())


def load(folder: str | Path, model: nn.Module) -> nn.Module:
    """Cut a fresh instance of the user's own class as the run in ``folder`` did, and load the pruned weights.

    ``model = rbprune.load("runs/demo", MyNet())``; the model keeps its class and is changed in place.
    """
    folder = Path(folder)
    for name in (PLAN, WEIGHTS):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}: it is no finished run; 'rbprune resume {folder}' finishes one")
    try:
        weights = load_file(folder / WEIGHTS)  # before the model is cut: it stays whole if they cannot be read
    except SafetensorError as error:
        raise ModelError(f"{folder / WEIGHTS} cannot be read: {error}; copy it anew, or repeat the run") from error
    apply_plan(model, Plan.from_json((folder / PLAN).read_text()))
    try:
        load_state(model, weights)
    except RuntimeError as error:
        raise ModelError(f"{folder / WEIGHTS} does not fit this {type(model).__name__}: {error}") from error
    return model
