"""Runs of a second, and what tests do with them: stop them at some moment, compare what they left."""

from __future__ import annotations

import hashlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rbprune.runs.start import start
from rbprune.settings.sections import Settings
from rbprune.train.runner import Runner
from rbprune.utils.interrupt import Interrupted

SMALL = (
    "data.limit=160",
    "data.val=100",
    "pretrain.batch_size=16",
    "prune.batch_size=16",
    "finetune.batch_size=16",
    "runtime.threads=1",
    "runtime.recalibrate=3",
    "runtime.time=false",
)
"""Settings for the recipe ``demo``: ten steps an epoch, each on few examples."""
QUICK = (
    *SMALL,
    "pretrain.epochs=2",
    "prune.epochs=3",
    "prune.rate_lr=0.1",
    "prune.price={nats_per_example=0.02, nats=0.2}",
    "prune.confidence=0",
    "prune.max_rise=100",
    "finetune.epochs=3",
    "finetune.distill=0.3",
    "finetune.average=0.5",
    "finetune.label_smoothing=0.1",
    "runtime.checkpoint_seconds=1000",
)
"""A whole run of 140 steps, which halves the MACs and learns something; checkpoints only where a phase ends."""
BETWEEN_STEPS = "_between_steps"
"""The method of a runner that is called between two training steps."""
CHILD = """
import os, sys, threading, time
from pathlib import Path
from rbprune.cli import main
from rbprune.runs.folder import RunFolder

number, moment, run = int(sys.argv[1]), sys.argv[2], RunFolder(sys.argv[3])

def watch():
    while not (run.has_checkpoint and run.events_file.is_file() and moment in run.events_file.read_text()):
        time.sleep(0.001)
    os.kill(os.getpid(), number)

threading.Thread(target=watch, daemon=True).start()
sys.argv = ["rbprune", "prune", "demo", "--out", sys.argv[3], *sys.argv[4:]]
main()
"""
"""A process that runs ``rbprune prune`` and sends itself a signal, at whatever step it is at a moment of its log."""


KILLED = """
import os, sys, threading, time
from pathlib import Path
from rbprune.cli import main

folder, logs, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def watch():
    while True:
        found = list(folder.glob(logs + "*/events.jsonl"))
        if found and moment in found[0].read_text():
            os.kill(os.getpid(), 9)
        time.sleep(0.001)

threading.Thread(target=watch, daemon=True).start()
sys.argv = ["rbprune", *sys.argv[4:]]
main()
"""
"""A process that runs a command of many runs and kills itself at a moment of the log of one of them: the arguments are
the folder, how the names of the run's folder begins within it, the moment, and the words of the command."""


def run_and_kill(folder: Path, logs: str, moment: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that makes many runs, in a process that kills itself at a moment of the log of one of them."""
    command = [sys.executable, "-c", KILLED, str(folder), logs, moment, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def quiet() -> Console:
    """A console that nobody sees."""
    return Console(file=io.StringIO(), width=200)


def overrides(settings: tuple[str, ...] = QUICK) -> list[str]:
    """Settings as words of a command."""
    return [word for item in settings for word in ("--set", item)]


def digest(folder: Path) -> str:
    """The hash of the weights in a run folder."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary in a run folder."""
    return json.loads((folder / "summary.json").read_text())


def events(folder: Path) -> list[dict[str, Any]]:
    """The log in a run folder."""
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def comparable(folder: Path) -> list[dict[str, Any]]:
    """The part of the log that is the same in every run with the same settings."""
    volatile = {"time", "seconds", "images_per_second", "command", "versions"}
    kept = [e for e in events(folder) if e["event"] in ("epoch", "stage", "dense", "warning")]
    return [{key: value for key, value in event.items() if key not in volatile} for event in kept]


def signalled(number: signal.Signals, moment: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own that gets the signal once it has a checkpoint and ``moment`` is in its log.

    There is a checkpoint every few steps, so that the run does not only stop where a phase ends.
    """
    words = overrides((*QUICK, "runtime.checkpoint_seconds=0.05"))
    command = [sys.executable, "-c", CHILD, str(int(number)), moment, str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def stop_after(steps: int, config: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until a signal comes between two steps."""
    plain, taken = getattr(Runner, BETWEEN_STEPS), 0

    def stop(self: Runner, signals: Any) -> None:
        nonlocal taken
        taken += 1
        if taken == steps:
            signals.received = signal.SIGTERM
        plain(self, signals)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(Runner, BETWEEN_STEPS, stop)
        start(config, folder, console=quiet())
