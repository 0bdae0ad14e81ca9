"""``rbprune frontier``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.quick import SMALL, overrides

WORDS = (
    *overrides((*SMALL, "pretrain.epochs=2", "prune.method=uniform", "finetune.epochs=1")),
    *("--to", "2", "--steps", "2"),
)


def test_it_prints_a_table_and_a_network_can_be_picked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "f"
    assert run("frontier", "demo", "--out", str(out), *WORDS) == 0
    table = capsys.readouterr().out
    assert "step-01-1.41x" in table and "step-02-2x" in table and f"page: {out / 'frontier.html'}" in table
    assert run("frontier", "demo", "--out", str(out), *WORDS, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads((out / "frontier.json").read_text())
    assert run("pick", str(out), "--max-error-rise", "100", "--out", str(tmp_path / "best")) == 0
    told = capsys.readouterr().out
    assert str(out / "step-02-2x") in told and "paired" in told and f"copied to {tmp_path / 'best'}" in told
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == (out / "step-02-2x/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("frontier", "demo", "--to", "0.5", "--out", "f"), "--to is how many times smaller"),
        (("frontier", "demo", "--to", "2", "--cost", "flops", "--out", "f"), "unknown cost 'flops'"),
        (("frontier", "demos", "--to", "2", "--out", "f"), "did you mean 'demo'"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
