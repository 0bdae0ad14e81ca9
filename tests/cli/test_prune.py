"""``rbprune prune``, from weights that ``rbprune train`` made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.quick import overrides


def test_prune_starts_from_given_weights_and_says_where_the_report_is(
    dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = ("--set", f"model.weights={dense / 'model.safetensors'}")
    assert run("prune", "demo", "--out", str(tmp_path / "pruned"), *overrides(), *weights) == 0
    pruned = json.loads((tmp_path / "pruned" / "summary.json").read_text())
    assert pruned["dense_epochs"]["pretrain"] == 0
    assert pruned["error_before"] == pytest.approx(json.loads((dense / "summary.json").read_text())["error_after"])
    shown = capsys.readouterr().out
    assert f"report: {tmp_path / 'pruned' / 'report.html'}" in shown
    assert pruned["verdict"]["text"][:40] in shown
    assert pruned["verdict"]["text"][:40] in (tmp_path / "pruned" / "report.html").read_text()


def test_a_run_that_is_not_good_enough_ends_with_another_code(dense: Path, tmp_path: Path) -> None:
    """The run is complete all the same, and is judged again when it is asked for again."""
    out = str(tmp_path / "pruned")
    weights = ("--set", f"model.weights={dense / 'model.safetensors'}")
    rose = ("--set", "prune.price.nats_per_example=500", "--set", "finetune.epochs=0", "--set", "prune.max_rise=100")
    assert run("prune", "demo", "--out", out, *overrides(), *weights, *rose, "--fail-above", "2") == 3
    summary = json.loads((tmp_path / "pruned" / "summary.json").read_text())
    assert summary["verdict"]["level"] == "bad"
    assert summary["error_after"] - summary["error_before"] > 2
    assert run("resume", out) == 0
    assert run("resume", out, "--fail-above", "2") == 3
    assert run("resume", out, "--fail-above", "99") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prune", "nonsense", "--out", "x"), "there is no recipe 'nonsense'"),
        (("prune", "demo", "--set", "prune.epoch=1", "--out", "x"), "did you mean 'epochs'"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
