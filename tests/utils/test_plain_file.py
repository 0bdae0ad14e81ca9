"""Only plain files are opened; a pipe is not waited for and a device not read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rbprune.errors import ConfigError, DataError
from rbprune.settings.recipe import read_toml
from rbprune.utils.plain_file import open_plain, read_if_there, read_plain, read_table


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[" * 10**5, "is no JSON"),
        (b'{"a": NaN}', "NaN is no number"),
        (b"[1]", r"holds no table \(JSON object\), but a list"),
        (b" " * 99, "has 99 bytes, where at most 50"),
    ],
)
def test_only_tables_are_read_from_json(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'{"a": 1}')
    assert read_table(file, DataError) == {"a": 1}
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(file, DataError, most=50 if len(content) == 99 else 1 << 20)


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_if_there(tmp_path / "a", DataError) is None
    (tmp_path / "a").write_bytes(b"here")
    assert read_if_there(tmp_path / "a", DataError) == b"here"
    with pytest.raises(DataError, match="is a folder"):
        read_if_there(tmp_path, DataError)
