"""The command itself: verbs, errors for people, exit codes."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
from importlib import import_module

import pytest

import rbprune
from rbprune.cli.app import VERBS
from rbprune.errors import ConfigError
from rbprune.utils.interrupt import Interrupted, StopNow
from tests.cli.command import run


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "--help") == 0
    text = capsys.readouterr().out
    assert f"rbprune {verb}" in text
    assert "--json" in text


@pytest.mark.parametrize("verb", VERBS)
def test_the_overview_says_of_each_verb_what_it_says_itself(verb: str) -> None:
    own = inspect.getdoc(getattr(import_module(f"rbprune.cli.{verb}"), verb))
    assert own is not None
    assert own.splitlines()[0] == VERBS[verb]


def test_the_version_does_not_wait_for_pytorch() -> None:
    script = (
        "import sys; from rbprune.cli import main\ntry: main(['--version'])\nfinally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == [rbprune.__version__, "False"], done.stderr


def test_public_names_come_when_they_are_asked_for() -> None:
    script = "import sys, rbprune\nprint('torch' in sys.modules, all(hasattr(rbprune, n) for n in rbprune.__all__))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
    with pytest.raises(AttributeError, match="no attribute 'prunes'"):
        rbprune.prunes  # noqa: B018
    assert set(rbprune.__all__) <= set(dir(rbprune))


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (("prune", "no-such-recipe", "--out", "x"), "ConfigError", "no-such-recipe"),
        (("prune", "demo", "--out", "x", "--sett", "a=1"), "UnknownOptionError", "--sett"),
    ],
)
def test_programs_get_errors_as_json(
    words: tuple[str, ...], kind: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--json") == 1
    found = json.loads(capsys.readouterr().out)["error"]
    assert found["kind"] == kind
    assert message in found["message"]


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
    def broken(arguments: list[str] | None, **options: bool) -> None:
        raise error

    monkeypatch.setattr(sys.modules["rbprune.cli.app"], "app", broken)
    assert run("demo") == code
    assert capsys.readouterr() == ("", text)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m rbprune count lenet5 --json 2>&1 >/dev/full; "
    script = f"set -o pipefail; {shlex.quote(sys.executable)} -u -m rbprune inspect resnet56-cifar --json | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGPIPE, "", "")
    full = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "No space left on device" in full.stdout
