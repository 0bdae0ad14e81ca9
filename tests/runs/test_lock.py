"""One run, one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rbprune.errors import CheckpointError, WriteError
from rbprune.runs.folder import RunFolder
from rbprune.runs.lock import Holder, locked, read_holder
from rbprune.utils.live_processes import ProcessId

RACE = """
import sys
from rbprune.errors import CheckpointError
from rbprune.runs.folder import RunFolder
from rbprune.runs.lock import locked
sys.stdin.readline()
try:
    with locked(RunFolder(sys.argv[1])):
        print("in", flush=True)
        sys.stdin.readline()
except CheckpointError as error:
    print(error, flush=True)
"""
"""Waits to be told, goes in, says so, and stays until it is told to leave."""


def lock_of(run: RunFolder, process: ProcessId, command: tuple[str, ...] = ("rbprune", "prune", "demo")) -> None:
    run.path.mkdir(exist_ok=True)
    fields = {"host": process.host, "pid": process.pid, "began": process.began, "command": command}
    run.lock_file.write_text(json.dumps(fields))


def test_a_second_process_is_refused_by_number(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with locked(run, ["rbprune", "prune", "my recipe.toml"]):
        assert read_holder(run) == Holder(ProcessId.own(), ("rbprune", "prune", "my recipe.toml"))
        with (
            pytest.raises(
                CheckpointError, match=rf"process {os.getpid()} works on .*run already .*'my recipe.toml'.*kill"
            ),
            locked(run),
        ):
            pass
        assert read_holder(run) is not None, "the refused one leaves it"
    assert not run.path.exists(), "nothing was written"


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    run, own = RunFolder(tmp_path / "run"), ProcessId.own()
    for dead in (ProcessId(own.host, 999999999), ProcessId(own.host, own.pid, 1)):
        lock_of(run, dead)
        with locked(run):
            assert read_holder(run) == Holder(own)
        assert not run.lock_file.exists() and run.path.is_dir()
    run.lock_file.write_text("")  # killed before it had written its name
    with locked(run):
        pass


def test_of_another_machine_it_says_how_to_remove_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a run")
    lock_of(run, ProcessId("node7", 12))
    with (
        pytest.raises(CheckpointError, match=r"process 12 on node7 .*if it has ended, .*: rm '.*/a run/run.lock'"),
        locked(run),
    ):
        pass


def test_of_two_that_find_a_dead_lock_one_goes_first(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    lock_of(run, ProcessId(ProcessId.own().host, 999999999))
    command = [sys.executable, "-c", RACE, str(run)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for child in both:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    said = sorted(child.stdout.readline().strip() for child in both if child.stdout is not None)
    for child in both:
        child.communicate("\n")
    assert said[0] == "in" and said[1].startswith("process "), said


def test_only_the_first_of_several_processes_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    with locked(run):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with locked(run):
            pass
        monkeypatch.delenv("LOCAL_RANK")
        assert run.lock_file.exists()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="cannot write .*file/run"), locked(RunFolder(tmp_path / "file" / "run")):
        pass


@pytest.mark.parametrize(
    ("group", "restarts", "taken"), [("job-7", "1", True), ("job-7", "0", False), ("other", "1", False)]
)
def test_a_group_that_torchrun_starts_anew_takes_over_from_another_machine(
    group: str, restarts: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "run")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", group)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    run.path.mkdir()
    for host, there in (("elsewhere", taken), (ProcessId.own().host, False)):
        holder = {"host": host, "pid": os.getppid(), "began": None, "command": [], "group": "job-7"}
        run.lock_file.write_text(json.dumps(holder))
        if there:
            with locked(run):
                assert read_holder(run) == Holder(ProcessId.own(), (), group)
        else:
            with pytest.raises(CheckpointError, match="works on"), locked(run):
                pass


def test_a_lock_that_leads_elsewhere_is_not_written_through(tmp_path: Path) -> None:
    """A folder from elsewhere could bring one that leads to any file of the user's."""
    (tmp_path / "mine").write_text("precious")
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.lock_file.symlink_to(tmp_path / "mine")
    with pytest.raises(CheckpointError, match=r"run.lock is a link, .* rm .*run.lock"), locked(run):
        pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(RunFolder(tmp_path).lock_file)
    with pytest.raises(CheckpointError, match="is a pipe"):
        read_holder(RunFolder(tmp_path))
