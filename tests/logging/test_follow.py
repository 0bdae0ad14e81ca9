"""Following a log that another process writes: half lines wait, and a log that is begun anew is read anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rbprune.errors import CheckpointError
from rbprune.logging.events import EventLog, read_events
from rbprune.logging.follow import EventFollower


def line(number: int) -> str:
    return json.dumps({"event": "epoch", "epoch": number}) + "\n"


def epochs(follower: EventFollower) -> list[int]:
    return [event["epoch"] for event in follower.events]


def test_only_new_lines_are_new(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    assert follower.look() == 0, "there is no log yet"
    path.write_text(line(1) + line(2))
    assert follower.look() == 2 and follower.look() == 0
    with path.open("a") as file:
        file.write(line(3))
    assert follower.look() == 1 and epochs(follower) == [1, 2, 3]


def test_a_half_written_line_waits_wherever_it_is_cut(tmp_path: Path) -> None:
    path, whole = (
        tmp_path / "events.jsonl",
        (line(1) + '{"event": "epoch", "epoch": 2, "name": "\u00e9\u2192"}\n').encode(),
    )
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        follower = EventFollower(path)
        follower.look()
        assert epochs(follower) == [1, 2][: whole[:cut].count(b"\n")] and follower.damaged == 0
        with path.open("ab") as file:
            file.write(whole[cut:])
        follower.look()
        assert epochs(follower) == [1, 2] and follower.damaged == 0


def test_a_log_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    """As a resumed run does it: the log is put back to what it was at the checkpoint, under a new inode."""
    path = tmp_path / "events.jsonl"
    path.write_text(line(1) + line(2))
    follower = EventFollower(path)
    follower.look()
    (tmp_path / "new").write_text(line(1) + line(7) + line(8))
    os.replace(tmp_path / "new", path)
    follower.look()
    assert epochs(follower) == [1, 7, 8]


def test_a_log_that_is_cut_and_written_again_in_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    follower = EventFollower(path)
    follower.look()
    for content in (line(9), line(5) + line(6) + line(7) + line(8)):  # shorter, and longer than what was read
        with path.open("r+") as file:
            file.truncate()
            file.write(content)
        follower.look()
        assert follower.events == read_events(path)


def test_a_log_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(1))
    follower = EventFollower(path)
    follower.look()
    path.unlink()
    assert follower.look() == 0 and follower.events == []
    path.write_text(line(4))
    assert follower.look() == 1 and epochs(follower) == [4]


def test_damaged_lines_are_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(1) + "{nonsense\n\n" + "[1]\n" + line(2))
    follower = EventFollower(path)
    assert follower.look() == 2 and follower.damaged == 2


def test_it_reads_what_the_log_of_a_run_writes(tmp_path: Path) -> None:
    log, follower = EventLog(tmp_path / "events.jsonl"), EventFollower(tmp_path / "events.jsonl")
    for number in range(50):
        log.write("epoch", epoch=number, text="a" * 1000)
        assert follower.look() == 1
    assert follower.events == log.events


def test_a_log_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, what in (("pipe", "a pipe"), ("endless", "a device")):
        with pytest.raises(CheckpointError, match=f"{name}: is {what}"):
            EventFollower(tmp_path / name).look()
        with pytest.raises(CheckpointError, match=f"{name}: is {what}"):
            read_events(tmp_path / name)
