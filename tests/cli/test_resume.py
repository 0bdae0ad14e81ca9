"""``rbprune resume``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run


def test_resuming_what_is_finished_prints_its_summary(dense: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("resume", str(dense), "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads((dense / "summary.json").read_text())
    assert run("resume", str(dense)) == 0
    assert f"report: {dense / 'report.html'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("resume", "nowhere"), "is no run folder"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
