"""``rbprune pick``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.test_pick import write


def test_it_says_path_cost_error_and_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "f")
    assert run("pick", str(folder), "--max-error-rise", "0.5") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(folder / "step-03")
    assert "40 MACs (2.50x fewer)" in lines[1]
    assert lines[2] == (
        "validation error 10.50 %, against the dense network +0.50 points (standard error 0.50, paired)"
    )
    assert run("pick", str(folder), "--max-error-rise", "0.5", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["rise"], found["paired"]) == (str(folder / "step-03"), 0.5, True)


def test_the_dense_network_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "f", (10.0, 12.0))
    assert run("pick", str(folder), "--max-error-rise", "1") == 0
    assert capsys.readouterr().out.startswith("the dense network: no smaller one is near enough")


@pytest.mark.parametrize(
    ("words", "message"), [(("pick", "nowhere", "--max-error-rise", "1"), "nowhere holds no frontier")]
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
