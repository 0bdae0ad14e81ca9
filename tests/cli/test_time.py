"""``rbprune time``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.test_pair import run_folder


@pytest.fixture(autouse=True)
def _barely_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short warm-up: how long things take is not looked at here."""
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)


def test_time_prints_json_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ("--keep", "5-10-76", "--batch", "1,4", "--rounds", "2", "--device", "cpu", "--threads", "1")
    assert run("time", "lenet5", *quick, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [(t["network"], t["batch"]) for t in result["timings"]] == [
        ("dense", 1),
        ("pruned", 1),
        ("dense", 4),
        ("pruned", 4),
    ]
    assert (round(result["macs_ratio"], 1), round(result["storage_ratio"]["pruned"], 1)) == (13.9, 29.9)
    assert (result["input"], result["machine"]["threads"]) == ([1, 28, 28], 1)
    assert run("time", "lenet5", *quick) == 0
    text = capsys.readouterr().out
    assert "dense / pruned" in text
    assert "MACs: 13.90x" in text
    assert re.search(r"on cpu \(.+\), 1 thread, torch \d.*2 rounds, wall time", text)


def test_time_without_widths_times_the_dense_network_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("time", "lenet5", "--batch", "1", "--rounds", "1", "--device", "cpu") == 0
    text = capsys.readouterr().out
    assert "dense ms" in text
    assert "pruned" not in text


def test_time_explains_an_input_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("time", "lenet5", "--input", "3x28x28", "--batch", "1", "--rounds", "1", "--device", "cpu") == 1
    assert "the model's forward fails on the example inputs [(2, 3, 28, 28)] at 'conv1'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*has no list of checksums")
def test_time_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path, "lenet5")
    assert run("time", "--run", str(folder), "--batch", "1", "--rounds", "1", "--device", "cpu", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "lenet5"
    assert result["storage"]["dense"] > result["storage"]["pruned"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("time",), "nothing to time; give a MODEL"),
        (("time", "lenet5", "--keep", "5", "--run", "x"), "--keep and --run both say"),
        (("time", "--run", "nowhere"), "nowhere is no run folder"),
        (("time", "lenet5", "--batch", "1;2"), "batch sizes such as 1,32; this is '1;2'"),
        (("time", "lenet5", "--batch", "0"), "numbers from 1 on"),
        (("time", "lenet5", "--device", "tpu"), "unknown device 'tpu'"),
        (("time", "lenet5", "--backend", "tvm", "--device", "cpu"), "unknown backend 'tvm'"),
        (("time", "lenet5", "--int8", "--device", "cpu"), "int8 is for the backends onnxruntime and openvino"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)


def test_time_on_several_backends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    quick = ("--keep", "5-10-76", "--batch", "1", "--rounds", "1", "--device", "cpu", "--threads", "1")
    assert run("time", "lenet5", *quick, "--backend", "eager,onnxruntime", "--int8", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [(t["backend"], t["int8"], t["network"]) for t in result["timings"]] == [
        (backend, int8, network)
        for backend, int8 in (("eager", False), ("onnxruntime", False), ("onnxruntime", True))
        for network in ("dense", "pruned")
    ]
    assert run("time", "lenet5", *quick, "--backend", "openvino") == 0
    text = capsys.readouterr().out
    assert "peak MB" in text
    assert re.search(r"openvino +1 +[\d.]+ +[\d.]+ +[\d.]+x +1.74 -> 0.0\d+ ", text)
