"""Only plain files are opened; a pipe is not waited for and a device not read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rbprune.errors import ConfigError, DataError
from rbprune.settings.recipe import read_toml
from rbprune.utils.plain_file import open_plain, read_plain


def test_a_plain_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    assert read_plain(tmp_path / "link", DataError, most=3) == b"abc"
    with pytest.raises(DataError, match="a: has 3 bytes, where at most 2 make sense"):
        read_plain(tmp_path / "a", DataError, most=2)


def test_what_is_no_plain_file_is_refused_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path may not be long
    os.mkfifo("pipe")
    Path("zeros").symlink_to("/dev/zero")
    Path("loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, what in (
            ("pipe", "is a pipe"),
            ("zeros", "is a device"),
            ("socket", "is a socket"),
            (".", "is a folder"),
            ("nowhere", "cannot be read: No such file"),
            ("loop", "cannot be read: Too many levels"),
            ("a\0b", "cannot be read: .*embedded null byte"),
            ("x" * 300, "cannot be read: File name too long"),
        ):
            with pytest.raises(DataError, match=what):
                open_plain(Path(name), DataError)


def test_a_recipe_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.toml")
    with pytest.raises(ConfigError, match=r"a.toml: is a pipe \(FIFO\), not a plain file"):
        read_toml(tmp_path / "a.toml")
