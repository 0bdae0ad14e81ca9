"""A phase in progress in checkpoints: what it holds beside the model, as tensors and plain values, and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from rbprune.train.checkpoint import optimizer_tensors, restore_optimizer

if TYPE_CHECKING:
    from rbprune.train.phase import PhaseRun


def phase_tensors(run: PhaseRun) -> dict[str, Tensor]:
    """What a checkpoint must hold beside the model."""
    found = {f"optim{i}.{k}": v for i, o in enumerate(run.optimizers) for k, v in optimizer_tensors(o).items()}
    if run.stage is not None and run.stage.module is not None:
        found |= {f"stage.{name}": tensor.detach() for name, tensor in run.stage.module.state_dict().items()}
    if run.stage is not None and run.stage.start is not None:
        found |= {f"start.{name}": tensor for name, tensor in run.stage.start.items()}
    if run.settling is not None and run.settling.before is not None:
        found["settling.before"] = run.settling.before
    return found if run.average is None else found | run.average.tensors()


def phase_values(run: PhaseRun) -> dict[str, Any]:
    """The plain values that a checkpoint must hold beside the tensors."""
    return {
        "step": run.step,
        "over": run.over,
        "settled": run.settled,
        "meter": run.meter.values(),
        "calm": run.settling.calm if run.settling else 0,
        "averaged": run.average.count if run.average else 0,
    }


def restore_phase_run(run: PhaseRun, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Go on where a checkpoint was taken."""
    run.step, run.over = values["step"], values["over"]
    if run.ending is not None:
        run.ending.settled = values["settled"]
    run.meter.restore(values["meter"])
    for i, optimizer in enumerate(run.optimizers):
        prefix = f"optim{i}."
        own = {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}
        restore_optimizer(optimizer, own)
    if run.stage is not None and run.stage.module is not None:
        names = run.stage.module.state_dict()
        run.stage.module.load_state_dict({name: tensors[f"stage.{name}"] for name in names})
    if run.stage is not None and run.stage.start is not None:
        run.stage.start = {name: run.engine.put(tensors[f"start.{name}"]) for name in run.stage.start}
    if run.settling is not None:
        before = tensors.get("settling.before")
        run.settling.before = None if before is None else run.engine.put(before)
        run.settling.calm = values["calm"]
    if run.average is not None:
        run.average.restore(tensors, values["averaged"])
