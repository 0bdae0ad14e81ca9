"""Resuming an interrupted run: it ends with the bits that it would have ended with anyway."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import CheckpointError, RestoreError, WriteError
from rbprune.logging.events import read_events
from rbprune.runs.build import make_runner
from rbprune.runs.folder import RunFolder
from rbprune.runs.going_on import not_a_run, saying_how_to_go_on
from rbprune.runs.lock import locked
from rbprune.runs.start import complete
from rbprune.runs.trust import check_code, check_links, resume_with_trust, seal_code
from rbprune.settings.recipe import read_toml
from rbprune.train.checkpoint import load_checkpoints
from rbprune.utils.processes import is_first


def resume(
    folder: Path, *, console: Console | None = None, command: list[str] | None = None, trust: bool = False
) -> dict[str, Any]:
    """Go on from the last checkpoint that is whole and can be restored, and return the summary.

    A finished run is checked and left as it is, but for what a kill has left of its checkpoints. Code that the settings
    in the folder name is run if the user who resumes has started the run, or says ``trust``.
    """
    run = RunFolder(folder)
    if not run.is_run:
        raise not_a_run(run)
    if run.is_finished:
        return _finished(run, console)
    check_links(run, trust=trust)
    check_code(run, run.read_settings(), trust=trust, remedy=resume_with_trust(run))
    with saying_how_to_go_on(run), locked(run, command or []):
        if run.is_finished:  # by somebody else, in between
            return _finished(run, console)
        if is_first():
            run.forget_sums()
            run.remove_leftovers()
            if trust:
                seal_code(run, run.read_settings())
        if run.has_checkpoint:
            return _from_checkpoint(run, console, command or [])
        return _from_the_start(run, console, command or [])


def _finished(run: RunFolder, console: Console | None) -> dict[str, Any]:
    told = run.check_files()
    _say(told, console)
    summary = run.read_summary()
    assert summary is not None
    if is_first() and run.leftovers():
        with suppress(WriteError, CheckpointError), locked(run):  # a folder that is only to be read is let be
            run.remove_leftovers()
    return summary


def _from_the_start(run: RunFolder, console: Console | None, command: list[str]) -> dict[str, Any]:
    """A run that was killed before its first checkpoint was whole."""
    _say(changed_settings(run, read_events(run.events_file)), console)
    runner = make_runner(run.read_settings(), run, console, command)
    runner.engine.wait()
    if runner.engine.main:
        run.forget_events()
    return complete(runner, run)


def _from_checkpoint(run: RunFolder, console: Console | None, command: list[str]) -> dict[str, Any]:
    for checkpoint, path, passed in load_checkpoints(run.checkpoints):
        runner = make_runner(run.read_settings(), run, console, command)
        try:
            told = [*passed, *changed_settings(run, checkpoint.values["events"])]
            runner.restore(checkpoint, path.name, told)
            if runner.engine.main:
                run.write_events(checkpoint.values["events"])
            runner.engine.wait()  # all have read it, before it makes room for the next
            return complete(runner, run)
        except RestoreError as error:
            passed.append(f"checkpoint {path} cannot be restored ({error}); falling back to the one before it")
    raise AssertionError("load_checkpoints ends with an error")


def changed_settings(run: RunFolder, events: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence where config.toml is not what the run began with, as its first event has it; what differs."""
    text = next((event["config_toml"] for event in events if isinstance(event.get("config_toml"), str)), None)
    if text is None:
        return []
    began, now = (dict(_flat(table)) for table in (tomllib.loads(text), read_toml(run.settings_file)))
    changes = [
        f"{key} = {now.get(key, 'none')!r}, which was {began.get(key, 'none')!r}"
        for key in sorted(began.keys() | now.keys())
        if began.get(key) != now.get(key)
    ]
    return [f"{run.settings_file} was changed since the run began: {'; '.join(changes)}"] if changes else []


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables by their dotted names."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _say(warnings: Sequence[str], console: Console | None) -> None:
    out = console or Console(stderr=True)
    for line in warnings if is_first() else ():
        out.print(f"warning: {line}", markup=False, highlight=False, soft_wrap=True)
