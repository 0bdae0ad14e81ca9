"""``rbprune train``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.quick import overrides


def test_train_leaves_a_dense_network(dense: Path) -> None:
    summary = json.loads((dense / "summary.json").read_text())
    assert summary["macs_ratio"] == 1
    assert summary["dense_epochs"]["pretrain"] > 0 == summary["dense_epochs"]["prune"]
    assert (dense / "model.safetensors").is_file()


def test_train_goes_on_from_given_weights(dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--set", f"model.weights={dense / 'model.safetensors'}", "--set", "pretrain.lr=1e-9", "--json")
    assert run("train", "demo", "--out", str(tmp_path / "more"), *overrides(), *more) == 0
    again, before = json.loads(capsys.readouterr().out), json.loads((dense / "summary.json").read_text())
    assert again["dense_epochs"]["pretrain"] > 0
    assert again["error_after"] == pytest.approx(before["error_after"], abs=1), "it went on from the given weights"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "vgg16-ilsvrc", "--out", "x"), r"has no \[pretrain\] section"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
