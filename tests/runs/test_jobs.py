"""Runs side by side in processes of their own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rbprune.errors import ConfigError
from rbprune.runs import jobs
from rbprune.runs.jobs import Job, check_jobs, run_side_by_side

STARTED = """
import sys
from functools import partial
from pathlib import Path
from rich.console import Console
from rbprune.runs.jobs import Job, run_side_by_side
from rbprune.utils.interrupt import Interrupted
from tests.runs.test_jobs import wait_for_signal

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    jobs = [Job(name, partial(wait_for_signal, folder / name), folder / f"{name}.log") for name in ("a", "b", "c")]
    try:
        run_side_by_side(jobs, 2, console=Console(quiet=True))
    except Interrupted as stop:
        sys.exit(stop.exit_code)
"""
"""Two jobs that wait for a signal, and a third that must not begin."""


def note(path: Path, needs: tuple[Path, ...], console: Console) -> None:
    """Say when it began and ended, and refuse to begin before others have ended."""
    assert all(each.exists() for each in needs), "too early"
    began = time.time()
    console.print(f"threads {torch.get_num_threads()}")
    time.sleep(0.3)
    path.write_text(f"{began} {time.time()} {os.getpid()}")


def fail(how: str, console: Console) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ConfigError("no such thing") if how == "told" else ZeroDivisionError("foreign")


def wait_for_signal(path: Path, console: Console) -> None:
    path.with_suffix(".began").touch()
    try:
        time.sleep(60)
    finally:
        path.with_suffix(".saved").touch()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of jobs must find this module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def test_jobs_go_on_side_by_side_and_after_those_that_they_need(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in "abcd"}
    after = {"a": "", "b": "a", "c": "a", "d": "bc"}
    listed = []
    for name in "dbca":  # in any order
        call = partial(note, places[name], tuple(places[each] for each in after[name]))
        listed.append(Job(name, call, tmp_path / f"{name}.log", tuple(after[name])))
    said = io.StringIO()
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        assert run_side_by_side(listed, 2, console=Console(file=said)) == {}
    finally:
        torch.set_num_threads(before)
    (_, a_end, _), (b_start, b_end, b_pid), (c_start, c_end, c_pid), (d_start, _, _) = (
        map(float, places[name].read_text().split()) for name in "abcd"
    )
    assert a_end <= min(b_start, c_start) and max(b_end, c_end) <= d_start
    assert len({b_pid, c_pid, float(os.getpid())}) == 3
    assert all((tmp_path / f"{name}.log").read_text() == "threads 2\n" for name in "abcd"), "an equal part of five"
    assert "d: done (0 left)" in said.getvalue()


def test_what_fails_is_told_by_name_and_stops_nothing_else(tmp_path: Path) -> None:
    listed = [Job(how, partial(fail, how), tmp_path / f"{how}.log") for how in ("told", "foreign", "killed")]
    listed.append(Job("good", partial(note, tmp_path / "good", ()), tmp_path / "good.log", ("told",)))
    failed = run_side_by_side(listed, 4, console=Console(quiet=True))
    assert failed["told"] == "no such thing"
    assert failed["foreign"].startswith("ZeroDivisionError: foreign (see ")
    assert "ZeroDivisionError" in (tmp_path / "foreign-failed.txt").read_text()
    assert "exit code -9 and without a word" in failed["killed"]
    assert (tmp_path / "good").exists() and set(failed) == {"told", "foreign", "killed"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_or_the_end_of_the_first_process_stops_all_in_their_own_way(number: int, tmp_path: Path) -> None:
    (tmp_path / "started.py").write_text(STARTED)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "started.py"), str(tmp_path)], env={**os.environ, "PYTHONPATH": path}
    )
    _wait_for(tmp_path / "a.began", tmp_path / "b.began")
    process.send_signal(number)
    code = process.wait(60)
    assert code == (-9 if number == signal.SIGKILL else 128 + number)
    _wait_for(tmp_path / "a.saved", tmp_path / "b.saved")
    assert not (tmp_path / "c.began").exists()


def _wait_for(*paths: Path) -> None:
    end = time.monotonic() + 90
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, [path.name for path in paths if not path.exists()]
        time.sleep(0.05)


def test_numbers_of_jobs_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--jobs is how many runs go on side by side; 0 is none"):
        check_jobs(0)
    monkeypatch.setattr(jobs, "world", lambda: 2)
    check_jobs(1)
    with pytest.raises(ConfigError, match="--jobs 3 starts processes of its own, and this is one of 2"):
        check_jobs(3)
