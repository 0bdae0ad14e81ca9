"""Signals while a run waits, starts or writes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rbprune.cli import main
from rbprune.runs import resume as resume_module
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import resume
from rbprune.train.phase import PhaseRun
from rbprune.train.stream import Stream
from rbprune.utils.interrupt import Interrupted, awaited
from tests.runs.quick import comparable, digest, quiet


class HangingStream:
    """A stream whose third batch does not come; a signal comes instead."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.size, self.steps = stream, stream.size, stream.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        return awaited(self.batches(number, start))

    def batches(self, number: int, start: int) -> Iterator[Any]:
        for index, batch in enumerate(self.stream.epoch(number, start)):
            if index == 2:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
                time.sleep(60)
            yield batch


def test_a_loader_that_hangs_does_not_hold_up_the_first_signal(
    copied: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is taken where it waits, so that nothing is lost."""
    monkeypatch.setattr("rbprune.utils.interrupt.PATIENCE", 0.3)
    plain = PhaseRun.run_epoch

    def hanging(self: PhaseRun) -> Iterator[Any]:
        self.stream = HangingStream(self.stream)
        return plain(self)

    began = time.monotonic()
    with monkeypatch.context() as patched, pytest.raises(Interrupted, match="go on with: rbprune resume") as stop:
        patched.setattr(PhaseRun, "run_epoch", hanging)
        resume(copied, console=quiet())
    assert stop.value.exit_code == 143 and time.monotonic() - began < 30
    resume(copied, console=quiet())
    assert digest(copied) == digest(whole)
    assert comparable(copied) == comparable(whole)


@pytest.mark.parametrize("moment", ["make_runner", "write_network"])
def test_a_signal_at_the_start_or_while_the_results_are_written(
    copied: Path, whole: Path, moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code, and what to do next: go on, or nothing because all is there."""
    place = resume_module if moment == "make_runner" else RunFolder
    plain = getattr(place, moment)

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return plain(*given)

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as stop:
        patched.setattr(place, moment, interrupted)
        main(["resume", str(copied)])
    assert stop.value.code == 143
    said = capsys.readouterr().err.replace("\n", "")
    if moment == "make_runner":
        assert f"interrupted; go on with: rbprune resume {copied}" in said
        resume(copied, console=quiet())
    else:
        assert f"interrupted at its end; the run in {copied} is complete" in said
    assert digest(copied) == digest(whole)
    assert {path.name for path in copied.iterdir()} == {path.name for path in whole.iterdir()}
