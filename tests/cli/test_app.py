"""The command itself: verbs, errors for people, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rbprune.errors import ConfigError
from rbprune.utils.interrupt import Interrupted, StopNow
from tests.cli.command import run

VERBS = ["demo", "train", "prune", "resume", "compare", "reproduce", "inspect", "count", "time", "shard"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "--help") == 0
    text = capsys.readouterr().out
    assert f"rbprune {verb}" in text
    assert "--json" in text


def test_it_is_a_module_and_has_every_verb() -> None:
    command = [sys.executable, "-m", "rbprune", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("the [bold] value 3 is wrong"), 1, "error: the [bold] value 3 is wrong\n"),
        (StopNow(15), 143, "interrupted; give the same command again\n"),
        (KeyboardInterrupt(), 130, "interrupted; give the same command again\n"),
        (FileNotFoundError("no such file: x"), 1, "error: no such file: x\n"),
        (
            Interrupted(15, "interrupted; rbprune resume x"),
            143,
            "interrupted; rbprune resume x\n",
        ),
    ],
)
def test_what_goes_wrong_is_told_without_a_traceback(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(arguments: list[str] | None) -> None:
        raise error

    monkeypatch.setattr(sys.modules["rbprune.cli.app"], "app", broken)
    assert run("demo") == code
    assert capsys.readouterr() == ("", text)
