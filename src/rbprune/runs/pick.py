"""The smallest network of a frontier whose validation error is near enough to the dense network's."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rbprune.errors import ConfigError
from rbprune.measure.doubt import ErrorDifference
from rbprune.runs.folder import RunFolder
from rbprune.runs.frontier import read_frontier
from rbprune.runs.point import PrunedPoint, check_has_validation


@dataclass(frozen=True)
class Choice:
    """The network that was picked, and how far its validation error is above that of the dense one."""

    folder: Path
    """Its run folder."""
    point: PrunedPoint
    cost: str
    rise: float
    """In points, on the validation data."""
    doubt: ErrorDifference | None

    @property
    def is_dense(self) -> bool:
        """Whether no smaller network is near enough."""
        return self.point.ratios[self.cost] == 1.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        doubt = None if self.doubt is None else self.doubt.standard_error
        paired = None if self.doubt is None else self.doubt.paired
        found = {**self.point.to_dict(), "path": str(self.folder), "cost": self.cost}
        return {**found, "rise": self.rise, "standard_error": doubt, "paired": paired}


def pick(folder: Path, max_error_rise: float) -> Choice:
    """The network of least cost in the frontier of ``folder`` whose validation error is at most so many points above
    the dense network's."""
    if not (math.isfinite(max_error_rise) and max_error_rise >= 0):
        raise ConfigError(f"--max-error-rise is a number of points, 0 or more; {max_error_rise:g} is not")
    found = read_frontier(folder)
    dense = found.dense
    check_has_validation(dense, "--max-error-rise")
    assert dense.val_error is not None
    near = [p for p in found.points if p.val_error is not None and p.val_error <= dense.val_error + max_error_rise]
    chosen = min(near, key=lambda point: point.costs[found.cost])  # the dense network is always among them
    assert chosen.val_error is not None
    return Choice(
        folder / chosen.path, chosen, found.cost, chosen.val_error - dense.val_error, chosen.worse_than(dense)
    )


def copy_choice(choice: Choice, out: Path) -> Path:
    """Copy the run folder of the network that was picked, without checkpoints; ``out`` must be new or empty."""
    if choice.is_dense and not RunFolder(choice.folder).is_finished:
        raise ConfigError(
            "no smaller network is near enough, and the dense one is where the recipe has it (model.weights): there is "
            "nothing to copy; allow a larger --max-error-rise"
        )
    RunFolder(out).check_empty("choose another --out")
    left_out = shutil.ignore_patterns(RunFolder(choice.folder).checkpoints.name, ".*.tmp")
    shutil.copytree(choice.folder, out, dirs_exist_ok=True, ignore=left_out)
    return out
