"""The ``rbprune`` command: verbs, errors for people, exit codes."""

from __future__ import annotations

import sys

from cyclopts import App
from rich.console import Console

from rbprune.cli.compare import compare
from rbprune.cli.count import count
from rbprune.cli.demo import demo
from rbprune.cli.inspect import inspect
from rbprune.cli.prune import prune
from rbprune.cli.reproduce import reproduce
from rbprune.cli.resume import resume
from rbprune.cli.shard import shard
from rbprune.cli.time import time
from rbprune.cli.train import train
from rbprune.errors import RbpruneError
from rbprune.utils.interrupt import Interrupted
from rbprune.utils.memory import keep_freed_memory
from rbprune.utils.names import printable
from rbprune.utils.processes import is_main

app = App(name="rbprune", help="Make trained convolutional networks smaller and faster by Recursive Bayesian Pruning.")
for verb in (demo, train, prune, resume, compare, reproduce, inspect, count, time, shard):
    app.command(verb)


def main(arguments: list[str] | None = None) -> None:
    """Entry point; the exit code is 0 only on success."""
    keep_freed_memory()
    try:
        app(arguments)
    except Interrupted as stop:
        if is_main():
            _complain(str(stop))
        sys.exit(stop.exit_code)
    except (RbpruneError, OSError) as error:
        _complain(f"error: {error}")
        sys.exit(1)


def _complain(text: str) -> None:
    Console(stderr=True).print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)
