"""Commands that start processes of their own, for real: torchrun and ``rbprune``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
"""Two processes on this machine."""


class Ended(NamedTuple):
    """A command that is over: the folder where it worked, its exit code, what it printed."""

    folder: Path
    code: int
    text: str


def execute(folder: Path, *command: str, **environment: str) -> Ended:
    """Python with these words, to its end; whatever it leaves running is ended too."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Ended(folder, process.returncode, text)
