"""Starting a run in a new folder, and bringing a run to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.runs.build import make_runner
from rbprune.runs.folder import RunFolder
from rbprune.runs.going_on import saying_how_to_go_on
from rbprune.runs.lock import locked
from rbprune.runs.trust import seal_code
from rbprune.settings.sections import Settings
from rbprune.train.runner import Runner
from rbprune.utils.interrupt import Interrupted, Signals
from rbprune.utils.processes import is_first, lost_processes_named


def start(
    settings: Settings, folder: Path, *, console: Console | None = None, command: list[str] | None = None
) -> dict[str, Any]:
    """Run ``settings`` into a new or empty folder and return the summary; ``command`` is shown in the report."""
    run = RunFolder(folder)
    with saying_how_to_go_on(run):
        if is_first():
            run.check_empty(f"choose another --out, or go on with 'rbprune resume {folder}'")
        with locked(run, command or []):
            if is_first():
                run.check_empty(f"choose another --out, or go on with 'rbprune resume {folder}'")  # nobody was faster
                run.remove_leftovers()
            runner = make_runner(settings, run, console, command or [])
            runner.engine.wait()
            if runner.engine.main:
                run.begin(runner.settings)
                seal_code(run, runner.settings)
            return complete(runner, run)


def complete(runner: Runner, run: RunFolder) -> dict[str, Any]:
    """Do what the runner has left to do, write the results and return the summary; of several processes one writes."""
    with lost_processes_named():
        summary = runner.run()
    with Signals() as signals:  # the results are written whole
        if runner.engine.main:
            run.write_network(runner.model, runner.pruner.plan)
            run.write_mistakes(runner.state.mistakes_before, runner.state.mistakes)
            run.finish(summary)
        runner.engine.wait()  # whoever asks for the summary next will find it
        stop = runner.asked_to_stop or signals.received
    if stop is not None:
        raise Interrupted(stop, f"interrupted at its end; the run in {run} is complete")
    return summary
