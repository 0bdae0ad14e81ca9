"""What is said of a run that ends before its end: where it is, and the command to go on with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rbprune.errors import CheckpointError, ProcessesError, WriteError
from rbprune.logging.events import read_events
from rbprune.runs.folder import RunFolder
from rbprune.runs.lock import read_holder
from rbprune.utils.interrupt import Interrupted, number_of
from rbprune.utils.processes import is_restarted


@contextmanager
def saying_how_to_go_on(run: RunFolder) -> Iterator[None]:
    """Inside, a signal that nobody noted and a file that cannot be written are told together with what to do next."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(number_of(stop), f"interrupted; {how_to_go_on(run)}") from None
    except ProcessesError as error:
        raise ProcessesError(f"{error}; {how_to_go_on(run)}") from error
    except WriteError as error:
        raise WriteError(f"{error}; then {how_to_go_on(run)}") from error


def how_to_go_on(run: RunFolder) -> str:
    """The next step for a run, whatever it has left behind."""
    if run.is_finished:
        return f"the run in {run} is complete"
    if run.is_run:
        return f"go on with: rbprune resume {shlex.quote(str(run))}"
    return "give the same command again: nothing is kept of this run"


def goes_on_after_restart(run: RunFolder, command: Sequence[str]) -> bool:
    """Whether torchrun has started this command anew after a process died, and the folder holds the run that the same
    command began: then it goes on. A folder that was there before is still refused."""
    if not is_restarted() or not run.is_run:
        return False
    holder, began = read_holder(run), next(iter(read_events(run.events_file)), {})
    known = [list(holder.command)] if holder is not None else []
    known += [began["command"]] if isinstance(began.get("command"), list) else []
    return list(command) in known


def not_a_run(run: RunFolder) -> CheckpointError:
    """Why a folder cannot be resumed; of one whose run was killed before it had settings, the command is known."""
    holder = read_holder(run)
    if holder is None:
        return CheckpointError(f"{run} is no run folder (it has no config.toml); start one with 'rbprune prune'")
    again = shlex.join(holder.command) or f"rbprune prune RECIPE --out {run}"
    return CheckpointError(
        f"nothing was trained yet in {run}: the run was killed while it started; give again: {again}"
    )
