"""``rbprune demo``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run


def test_the_demo_replaces_an_earlier_demo_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "config.toml").write_text('[model]\nname = "mine"\n[data]\nname = "folder"\n')
    assert run("demo", "--out", str(tmp_path)) == 1
    assert "exists and is not empty" in capsys.readouterr().err
    assert (tmp_path / "summary.json").is_file()
    (tmp_path / "config.toml").write_text('[model]\nname = "lenet5"\n[data]\nname = "mnist-subset"\n')
    monkeypatch.setattr("rbprune.cli.demo.start", lambda config, out, command: {"emptied": not out.exists()})
    assert run("demo", "--out", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"emptied": True}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("demo", "--set", "typo=1", "--out", "x"), "typo: unknown key"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
