"""Resuming an interrupted run: it ends with the bits that it would have ended with anyway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import CheckpointError
from rbprune.runs.build import make_runner
from rbprune.runs.folder import RunFolder
from rbprune.runs.start import complete
from rbprune.runs.trust import check_code, check_links, seal_code
from rbprune.train.checkpoint import load_checkpoint


def resume(
    folder: Path, *, console: Console | None = None, command: list[str] | None = None, trust: bool = False
) -> dict[str, Any]:
    """Go on from the last whole checkpoint and return the summary; a finished run is left as it is.

    Code that the settings in the folder name is run if the user who resumes has started the run, or says ``trust``.
    """
    run = RunFolder(folder)
    if not run.is_run:
        raise CheckpointError(f"{folder} is no run folder (it has no config.toml); start one with 'rbprune prune'")
    summary = run.read_summary()
    if summary is not None:
        return summary
    settings = run.read_settings()
    check_links(run, trust=trust)
    check_code(run, settings, trust=trust)
    runner = make_runner(settings, run, console, command or [])
    main = runner.engine.main
    if main and trust:
        seal_code(run, settings)
    if not run.has_checkpoint:  # killed before the first one was whole
        runner.engine.wait()
        if main:
            run.forget_events()
        return complete(runner, run)
    checkpoint, path, damaged = load_checkpoint(run.checkpoints)
    if main:
        run.forget_events_after(checkpoint.values["events"])
    runner.restore(checkpoint, path.name, damaged)
    runner.engine.wait()  # all have read it, before it makes room for the next
    return complete(runner, run)
