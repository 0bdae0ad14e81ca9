"""Where a run stands, told from outside while another process works on it: stage, time left, errors, and whether that
process still lives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rbprune.errors import CheckpointError
from rbprune.logging.event_fields import as_text
from rbprune.logging.follow import EventFollower
from rbprune.report.html import verdict_of
from rbprune.report.run_record import Event, RunRecord, gather_run
from rbprune.runs.folder import RunFolder
from rbprune.runs.lock import Holder, read_holder
from rbprune.runs.time_left import count_stages, seconds_left
from rbprune.utils.numbers import as_number

State = Literal["starting", "running", "elsewhere", "between steps", "finished", "stopped", "dead"]
"""``elsewhere``: on another machine, as far as can be seen from here; ``between steps``: of a search, whose next step
has not begun; ``stopped``: it was asked to stop and left a checkpoint; ``dead``: its process is gone."""
OVER: tuple[State, ...] = ("finished", "stopped", "dead")
PATIENCE = 120.0
"""Seconds that a search may take between two of its steps before it counts as stopped."""


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands."""

    folder: Path
    state: State
    record: RunRecord
    holder: Holder | None
    damaged: int
    step: str | None = None
    """The step that a search with ``prune.max_error_rise`` is at."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come unless somebody resumes the run."""
        return self.state in OVER

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; what is unknown is None."""
        run, now = self.record, self._now()
        last = run.stages[-1] if run.stages else {}
        verdict = verdict_of(run)
        return {
            "folder": str(self.folder),
            "state": self.state,
            "step": self.step,
            "process": self._process(),
            "model": run.start.get("model"),
            "method": run.start.get("method"),
            "phase": now.get("phase"),
            "stage": as_number(now.get("stage")),
            "stages": self.stages,
            "stages_done": len(run.stages),
            "epoch": as_number(now.get("epoch")),
            "epochs": as_number(now.get("epochs")),
            "seconds": run.seconds,
            "seconds_left": None if self.is_over else seconds_left(run),
            "silent_seconds": self.silent,
            "loss": as_number(now.get("loss")),
            "metric": run.metric,
            "val_error_before": run.val_error_before,
            "val_error": _last(run, "val_error"),
            "forecast": as_number(last.get("forecast")),
            "measured": as_number(last.get("measured")),
            "ratios": {name: cost.ratio for name, cost in run.costs.items()},
            "damaged_lines": self.damaged,
            "warnings": run.warnings,
            "verdict": None if verdict is None else {key: verdict[key] for key in ("level", "text")},
        }

    @property
    def stages(self) -> int | None:
        """How many stages the run has, once that is known."""
        return count_stages(self.record)

    @property
    def phase(self) -> str:
        """The phase that the run is in, as its events name it; empty before the first epoch is over."""
        return as_text(self._now().get("phase"))

    @property
    def silent(self) -> float | None:
        """Seconds since the last event, by the clock of this machine."""
        last = as_number(self.record.last.get("time"))
        return None if last is None else max(0.0, time.time() - last)

    def _now(self) -> Event:
        return self.record.epochs[-1] if self.record.epochs else {}

    def _process(self) -> dict[str, Any] | None:
        if self.holder is None:
            return None
        process = self.holder.process
        return {"host": process.host, "pid": process.pid, "command": list(self.holder.command)}


def _last(run: RunRecord, key: str) -> float | None:
    """The last number that an event has under this key."""
    values = (as_number(event.get(key)) for event in reversed(run.timeline))
    return next((value for value in values if value is not None), None)


class RunWatch:
    """Looks at a run folder again and again; ``status`` is what there is to tell at each look."""

    def __init__(self, folder: Path) -> None:
        self.run = RunFolder(folder)
        if not self.run.is_run and read_holder(self.run) is None:
            below = sorted(each.name for each in self.run.path.glob("*") if RunFolder(each).settings_file.is_file())
            hint = f"there are runs below it: {', '.join(below[:5])}" if below else "give the --out of 'rbprune prune'"
            raise CheckpointError(f"{self.run} is no run folder (it has no config.toml); {hint}")
        self._follower = EventFollower(self.run.events_file)
        self._quiet_since: float | None = None

    def status(self) -> RunStatus:
        """Look once."""
        place = self._place()
        if self._follower.path != place.events_file:
            self._follower = EventFollower(place.events_file)
        holder = read_holder(place)  # before the log and the summary: who ends a run writes those first
        self._follower.look()
        record = gather_run(list(self._follower.events))
        step = None if place is self.run else place.path.name
        state = self._state(place, holder)
        return RunStatus(self.run.path, state, record, holder, self._follower.damaged, step)

    def _place(self) -> RunFolder:
        """The run itself or, of a search that goes on, the step that was written to last."""
        if self.run.is_finished or self.run.events_file.is_file():
            return self.run
        steps = [RunFolder(each) for each in self.run.steps.glob("*")]
        begun = [step for step in steps if step.events_file.is_file()]
        return max(begun, key=lambda step: step.events_file.stat().st_mtime, default=self.run)

    def _state(self, place: RunFolder, holder: Holder | None) -> State:
        if self.run.is_finished:
            return "finished"
        if holder is not None:
            self._quiet_since = None
            if holder.process.is_dead:
                return "dead"
            begun = bool(self._follower.events)
            return ("running" if begun else "starting") if holder.process.is_here else "elsewhere"
        if place is not self.run and place.is_finished:
            self._quiet_since = self._quiet_since or time.monotonic()
            return "between steps" if time.monotonic() - self._quiet_since < PATIENCE else "stopped"
        return "stopped"
