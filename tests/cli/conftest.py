"""A dense network that several verbs start from, and the check of a command that is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.quick import overrides


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of ``rbprune train``; nobody may change it."""
    folder = tmp_path_factory.mktemp("cli") / "dense"
    assert run("train", "demo", "--out", str(folder), *overrides(), "--json") == 0
    return folder


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """The command ends with one message and the code 1, prints nothing else and leaves nothing behind."""

    def check(words: tuple[str, ...], message: str) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(*words) == 1
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ")
        assert "Traceback" not in captured.err
        assert captured.out == ""
        assert re.search(message, captured.err)
        assert not list(tmp_path.iterdir())

    return check


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished ``rbprune prune``; nobody may change it."""
    folder = tmp_path_factory.mktemp("cli") / "whole"
    assert run("prune", "demo", "--out", str(folder), *overrides(), "--json") == 0
    return folder
