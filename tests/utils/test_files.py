"""Files appear whole or not at all, the dead leave nothing for ever, and what hinders writing is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rbprune.errors import RbpruneError, WriteError
from rbprune.utils.files import atomic, is_dead_temporary, temporaries, write_atomic, write_errors
from rbprune.utils.live_processes import mark
from tests.utils.full_disk import full_disk


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError), atomic(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_dead_left_of_the_same_file_goes_with_the_next_write(tmp_path: Path) -> None:
    (tmp_path / ".a.999999999.tmp").write_text("dead")
    (tmp_path / ".b.999999999.tmp").write_text("dead, of another file")
    (tmp_path / f".a.{mark().rpartition('-')[0]}-1.tmp").write_text("of a live process: the first of this machine")
    (tmp_path / ".a.elsewhere-999999999.tmp").write_text("who knows")
    write_atomic(tmp_path / "a", "x")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a", ".b.999999999.tmp", f".a.{mark().rpartition('-')[0]}-1.tmp", ".a.elsewhere-999999999.tmp"}
    assert len(temporaries(tmp_path)) == 3
    assert [path.name for path in temporaries(tmp_path) if is_dead_temporary(path)] == [".b.999999999.tmp"]


def test_a_full_disk_is_told_with_the_path_and_the_remedy(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "a", "old")
    with (
        full_disk("a"),
        pytest.raises(
            WriteError, match=rf"^cannot write {path}: No space left on device; make room on the disk$"
        ) as no,
    ):
        write_atomic(path, "x" * 100_000)
    assert isinstance(no.value, RbpruneError) and isinstance(no.value, OSError)
    assert (no.value.errno, no.value.strerror) == (errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="gone/a: No such file or directory; its folder is gone, put it back"):
        write_atomic(tmp_path / "gone" / "a", "x")


def test_an_error_about_another_file_is_let_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"), write_errors(tmp_path / "a"):
        (tmp_path / "elsewhere").read_text()


def test_a_link_under_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / f".a.json.{mark()}.tmp").symlink_to(tmp_path / "mine")
    assert write_atomic(tmp_path / "a.json", "new").read_text() == "new"
    assert (tmp_path / "mine").read_text() == "precious"
