"""Runs that are killed, at a random moment or while one of their files is written, and resumed.

Every run and every resume is a process of its own, forked off so that nothing has to be imported again.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rbprune.errors import CheckpointError
from rbprune.logging.events import EventLog
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import QUICK, comparable, digest, quiet

SETTINGS = (*QUICK, "runtime.checkpoint_seconds=0.1")
NAMED = (
    *(f"{when} {name}" for when in ("before", "after") for name in ("config.toml", "ckpt-000000", "ckpt-000003")),
    *(f"{when} {name}" for when in ("before", "after") for name in ("model.safetensors", "plan.json", "report.html")),
    *(f"{when} {name}" for when in ("before", "after") for name in ("SHA256SUMS", "summary.json")),
    "within state.safetensors",
    "within state.json",
    "within events.jsonl",
    "within run.lock",
)
"""Moments: before a file that is written gets its name, after it, or with half of its content on the disk."""


@dataclass
class KillFigures:
    """What came of some kills."""

    kills: int = 0
    ended_before: int = 0
    """Runs that were over when the signal came."""
    unequal: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.kills} kills ({self.ended_before} came too late): {len(self.unequal)} unequal, "
            f"{len(self.leftovers)} with leftovers, {len(self.errors)} that could not be resumed"
        )


def forked(work: Callable[[], object]) -> int:
    """Begin the work in a process of its own and return its number; it ends with 0, or 1 after an error."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(child: int) -> int:
    """Wait for a process; its exit code, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def begin_or_resume(folder: Path) -> None:
    """What a user does with a run, whatever state it is in: resume, or the same command again where that says so."""
    try:
        resume(folder, console=quiet())
    except CheckpointError as error:
        if "nothing was trained yet" not in str(error) and "is no run folder" not in str(error):
            raise
        start(load_recipe("demo", SETTINGS), folder, console=quiet(), command=["rbprune", "prune", "demo"])


def die_at(moment: str) -> None:
    """Let this process kill itself at a moment of ``NAMED``."""
    when, name = moment.split(" ")
    plain_replace, plain_fsync = os.replace, os.fsync

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def replace(source: Any, target: Any) -> None:
        if when == "before" and Path(target).name == name:
            die()
        plain_replace(source, target)
        if when == "after" and Path(target).name == name:
            die()

    def fsync(descriptor: int) -> None:
        if when == "within" and Path(os.readlink(f"/proc/self/fd/{descriptor}")).name == name:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        plain_fsync(descriptor)

    os.replace, os.fsync = replace, fsync  # type: ignore[assignment]
    if moment == "within events.jsonl":
        die_within_an_event(5)


def die_within_an_event(number: int) -> None:
    """Let this process kill itself with half of the line of an event in its log."""
    count, write = 0, EventLog.write

    def torn(self: EventLog, event: str, **fields: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count == number and self.path is not None:
            with self.path.open("a") as file:
                file.write(f'{{"time": 1.0, "event": "{event}", "ha')
            os.kill(os.getpid(), signal.SIGKILL)
        return write(self, event, **fields)

    EventLog.write = torn  # type: ignore[method-assign]


def kill_at(moment: str, folder: Path) -> int:
    """Run until a moment of ``NAMED``; the exit code."""

    def work() -> None:
        die_at(moment)
        begin_or_resume(folder)

    return ended(forked(work))


def kill_after(seconds: float, folder: Path) -> int:
    """Run for so long at most; the exit code."""
    child = forked(lambda: begin_or_resume(folder))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.005)
    else:
        os.kill(child, signal.SIGKILL)
    return ended(child)


def check_end(name: str, folder: Path, reference: Path, figures: KillFigures) -> None:
    """Bring a killed run to its end and compare it with the one that was never interrupted."""
    if ended(forked(lambda: begin_or_resume(folder))) or ended(forked(lambda: begin_or_resume(folder))):
        figures.errors.append(name)  # the second time it is finished, and what the first one left goes
        return
    same_plan = (folder / "plan.json").read_bytes() == (reference / "plan.json").read_bytes()
    if digest(folder) != digest(reference) or not same_plan or comparable(folder) != comparable(reference):
        figures.unequal.append(name)
    known = {path.name for path in reference.iterdir()}
    left = [path.name for path in folder.iterdir() if path.name not in known]
    if left or RunFolder(folder).check_files():
        figures.leftovers.append(f"{name}: {left}")


def torture_by_kills(named: int, by_chance: int, folder: Path, *, seed: int = 0) -> KillFigures:
    """Kill so many runs at named moments and at random ones, some of them again while they are resumed."""
    figures, chance, reference = KillFigures(), random.Random(seed), folder / "reference"
    began = time.monotonic()
    assert ended(forked(lambda: begin_or_resume(reference))) == 0
    length = time.monotonic() - began
    jobs: list[tuple[str, Callable[[Path], int]]] = []
    for moment in chance.sample(NAMED, named):
        jobs.append((moment, lambda place, moment=moment: kill_at(moment, place)))  # type: ignore[misc]
    for _ in range(by_chance):
        seconds = chance.uniform(0, length)
        jobs.append((f"after {seconds:.2f} s", lambda place, seconds=seconds: kill_after(seconds, place)))  # type: ignore[misc]
    for number, (name, kill) in enumerate(jobs):
        place = folder / f"run{number}"
        codes = [kill(place)]
        while codes[-1] == -signal.SIGKILL and chance.random() < 0.3:
            codes.append(kill_after(chance.uniform(0, length), place))
        figures.kills += codes.count(-signal.SIGKILL)
        figures.ended_before += codes[0] == 0
        if any(code not in (0, -signal.SIGKILL) for code in codes):
            figures.errors.append(f"{name}: {codes}")
            continue
        check_end(name, place, reference, figures)
    return figures
