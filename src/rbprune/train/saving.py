"""The state of a whole run in checkpoints: written between two steps, put back into a fresh runner."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from rbprune.bayes.likelihood import Location
from rbprune.errors import CheckpointError, DataError, RestoreError, first_line
from rbprune.train.checkpoint import Checkpoint
from rbprune.train.phase_state import phase_tensors, phase_values, restore_phase_run
from rbprune.train.state import RunState
from rbprune.utils.interrupt import Interrupted
from rbprune.utils.state import load_state, state_tensors

if TYPE_CHECKING:
    from rbprune.train.phase import PhaseRun
    from rbprune.train.runner import Runner


def take_checkpoint(runner: Runner) -> Checkpoint:
    """Everything that the rest of the run depends on."""
    tensors = {f"model.{k}": v for k, v in state_tensors(runner.model).items()}
    if runner.teacher is not None:
        tensors |= {f"teacher.{k}": v for k, v in state_tensors(runner.teacher).items()}
    if runner.current is not None:
        tensors |= phase_tensors(runner.current)
    values: dict[str, Any] = {
        "state": asdict(runner.state),
        "sites": runner.graph.plan().sites,
        "blocks": list(runner.graph.removed_blocks),
        "phase": None if runner.current is None else phase_values(runner.current),
        "events": list(runner.journal.events),
        "dataset_size": runner.dataset_size,
    }
    return Checkpoint(tensors, values)


def restore_checkpoint(runner: Runner, checkpoint: Checkpoint) -> None:
    """Bring a fresh runner to where the checkpoint was taken, but for the phase in progress, which is begun later.

    A RestoreError where that cannot be done: the runner is of no use then, and an earlier checkpoint may do.
    """
    with _restore_errors():
        began = checkpoint.values.get("dataset_size", runner.dataset_size)
    if began != runner.dataset_size:
        raise CheckpointError(
            f"{runner.files} began with {began} training examples, and now there are {runner.dataset_size}: divided "
            "anew, its validation examples would be ones it has trained on. Put the files back (data.corrupt = "
            '"skip" in its config.toml leaves out corrupt ones), or start a new run'
        )
    with _restore_errors():
        _restore(runner, checkpoint)


def restore_phase(phase: PhaseRun, checkpoint: Checkpoint) -> None:
    """Let a phase that has just begun go on where the checkpoint was taken, if it was taken within one."""
    if checkpoint.values["phase"] is not None:
        with _restore_errors():
            restore_phase_run(phase, checkpoint.tensors, checkpoint.values["phase"])


@contextmanager
def _restore_errors() -> Iterator[None]:
    """Inside, whatever a checkpoint lacks or holds too much is a RestoreError."""
    try:
        yield
    except (DataError, OSError):  # no fault of the checkpoint
        raise
    except Exception as error:
        raise RestoreError(f"{type(error).__name__}: {first_line(error)}") from error


def interrupted(runner: Runner, number: int) -> Interrupted:
    """What is said of a run that was asked to stop, with the command to go on with."""
    hint = f"; go on with: rbprune resume {runner.files}" if runner.files else ""
    return Interrupted(number, f"interrupted{hint}")


def _restore(runner: Runner, checkpoint: Checkpoint) -> None:
    values = checkpoint.values
    for name, value in asdict(RunState(**values["state"])).items():
        setattr(runner.state, name, value)
    if isinstance(runner.pruner.likelihood, Location) and runner.state.error_sums is not None:
        runner.pruner.likelihood.sums = torch.tensor(runner.state.error_sums, dtype=torch.float64)
        runner.pruner.likelihood.is_measured = True
    if runner.state.dense_loss is not None:
        runner.measure_dense()
    if runner.data.skipped is not None:
        runner.data.skipped.add(runner.state.skipped)
    dense = checkpoint.group("teacher")
    if dense:
        runner.teacher = copy.deepcopy(runner.model).requires_grad_(False)
        load_state(runner.teacher, dense)
        runner.engine.place(runner.teacher)
    if values.get("blocks"):
        runner.graph.remove_blocks(values["blocks"])
    for site, left in values["sites"].items():
        kept = set(left["kept"])
        runner.graph.remove({site: [c for c in range(left["channels"]) if c not in kept]})
    load_state(runner.model, checkpoint.group("model"))
