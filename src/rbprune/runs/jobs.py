"""Runs side by side, each in a process of its own: some wait for others, and all are stopped together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rbprune.errors import ConfigError
from rbprune.runs.series import reason
from rbprune.utils.interrupt import Interrupted, Signals, SignalsStop
from rbprune.utils.processes import world

_POLL_SECONDS = 0.2
_SPAWN = multiprocessing.get_context("spawn")
"""A process that was forked off would inherit torch's threads in whatever state they are."""


@dataclass(frozen=True)
class Job:
    """A call that ends with nothing but what it writes, such as a run; it must be one that pickle knows by name."""

    name: str
    call: Callable[[Console], object]
    """It is given where to print."""
    log: Path
    """What it prints; the traceback of an error that nobody foresaw lies beside it."""
    after: tuple[str, ...] = ()
    """The jobs that must have ended before, well or not."""


def run_side_by_side(jobs: Sequence[Job], most: int, *, console: Console) -> dict[str, str]:
    """Do all jobs, at most so many at once and in their order as far as they need not wait; returns what went wrong in
    those that failed, by name.

    They share the threads of this process equally. A signal stops them all, as it would stop a run: each saves a
    checkpoint first. So does the death of this process.
    """
    check_jobs(most)
    threads = max(1, torch.get_num_threads() // most)
    waiting, running, failed = list(jobs), dict[str, _Running](), dict[str, str]()
    with Signals() as signals:
        try:
            while waiting or running:
                left = {job.name for job in waiting} | set(running)
                for job in [job for job in waiting if left.isdisjoint(job.after)][: most - len(running)]:
                    waiting.remove(job)
                    running[job.name] = _Running.start(job, threads)
                    _say(console, f"{job.name}: started, see {job.log}")
                wait([each.process.sentinel for each in running.values()], timeout=_POLL_SECONDS)
                if signals.received is not None:
                    raise Interrupted(signals.received, "interrupted; call the same command again to go on")
                for name in [name for name, each in running.items() if not each.process.is_alive()]:
                    fault = running.pop(name).fault()
                    failed |= {} if fault is None else {name: fault}
                    _say(console, f"{name}: {'done' if fault is None else fault} ({len(waiting) + len(running)} left)")
        finally:
            for each in running.values():
                each.process.terminate()
            for each in running.values():
                each.process.join()
    return failed


def check_jobs(most: int) -> None:
    """Refuse numbers of jobs that cannot be."""
    if most < 1:
        raise ConfigError(f"--jobs is how many runs go on side by side; {most} is none")
    if most > 1 and world() > 1:
        raise ConfigError(
            f"--jobs {most} starts processes of its own, and this is one of {world()} that train together; leave out "
            "--jobs, or call rbprune without torchrun"
        )


@dataclass(frozen=True)
class _Running:
    """A job that was started."""

    job: Job
    process: Any
    told: Connection

    @staticmethod
    def start(job: Job, threads: int) -> _Running:
        receiver, sender = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=_work, args=(job, threads, sender), name=job.name)
        process.start()
        sender.close()
        return _Running(job, process, receiver)

    def fault(self) -> str | None:
        """What went wrong in a job that is over; None if nothing did."""
        with suppress(EOFError), self.told:
            told: str | None = self.told.recv()
            return told
        return f"its process ended with exit code {self.process.exitcode} and without a word; see {self.job.log}"


def _work(job: Job, threads: int, sender: Connection) -> None:
    """In the process of a job: do it, and tell what went wrong."""
    os.setpgrp()  # Ctrl-C is for the process that started this one, which passes it on once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("a") as file, SignalsStop():
        try:
            job.call(Console(file=file, width=120))
            sender.send(None)
        except (Interrupted, KeyboardInterrupt) as stop:
            sender.send(str(stop) or "interrupted")
        except Exception as error:
            sender.send(reason(error, job.log.with_name(f"{job.log.stem}-failed.txt")))


def _end_with_parent() -> None:
    """Stop this process, as a signal would, when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
