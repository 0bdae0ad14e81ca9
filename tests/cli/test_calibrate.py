"""``rbprune calibrate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbprune.cli import main
from rbprune.graph.latency_table import LatencyTable

QUICK = ("--points", "2", "--rounds", "3", "--device", "cpu", "--clock", "cpu")


def test_a_file_that_says_what_it_was_measured_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "device.json"
    with pytest.raises(SystemExit) as stop:
        main(["calibrate", "lenet5", "--out", str(out), "--batch", "2", "--backend", "onnxruntime", *QUICK])
    assert not stop.value.code
    table = LatencyTable.load(out)
    assert (table.network, table.input, set(table.layers)) == ("lenet5", [1, 28, 28], {"conv1", "conv2", "fc1", "fc2"})
    assert (table.on.backend, table.on.batch, table.on.threads) == ("onnxruntime", 2, 1)
    shown = capsys.readouterr()
    assert "checked: 60% of the channels" in shown.out and f"table: {out}" in shown.out
    assert "Conv2d 5x5" in shown.err


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["calibrate", "lenet5", "--out", str(tmp_path / "device.json"), "--json", *QUICK])
    found = json.loads(capsys.readouterr().out)
    assert found["step"] >= 1 and any(check["name"] == "dense" for check in found["checks"])


def test_mistakes_are_told_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["--out", str(tmp_path / "none" / "device.json")], "there is no folder"),
        (["--out", str(tmp_path / "device.json"), "--rounds", "1"], "rounds is 1; it is at least 3"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["calibrate", "lenet5", *words])
        assert stop.value.code == 1 and told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
