"""The command line as a user meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rbprune.cli import main
from tests.runs.quick import QUICK
from tests.runs.test_pair import run_folder

VERBS = ["demo", "train", "prune", "resume", "compare", "reproduce", "inspect", "count", "time", "shard"]
OWN = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

def example_inputs():
    return torch.zeros(2, 3, 16, 16)
"""


def run(*words: str) -> int:
    """The exit code of ``rbprune words``."""
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "--help") == 0
    text = capsys.readouterr().out
    assert f"rbprune {verb}" in text
    assert "--json" in text


def test_count_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("count", "vgg16-cifar", "--keep", "50-63-123-108-104-57-23-14-9-8-6-7-11-11-12", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert round(result["macs_ratio"], 2) == 3.50
    assert round(result["params_ratio"], 1) == 38.9
    assert len(result["layers"]) == 16


def test_count_and_inspect_print_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("count", "lenet5", "--keep", "5-10-76") == 0
    assert "accumulating" in capsys.readouterr().out
    assert run("inspect", "resnet20-cifar") == 0
    table = capsys.readouterr().out
    assert "layer2.0.conv1" in table
    assert "inside (down)" in table
    assert "frozen: linear: the network's output" in table


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


def test_time_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path, "lenet5")
    assert run("time", "--run", str(folder), "--batch", "1", "--rounds", "1", "--device", "cpu", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "lenet5"
    assert result["storage"]["dense"] > result["storage"]["pruned"]


def test_count_shows_the_stages_of_a_residual_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("count", "resnet20-cifar", "--keep", "16-8-8") == 0
    assert re.search(r"layer1\s+.\s+32/48\s+.\s+66\.7", capsys.readouterr().out)


def test_inspect_a_users_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    assert run("inspect", f"{tmp_path}/mine.py:net", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [site["site"] for site in result["sites"]] == ["0"]
    assert result["frozen"] == {"4": "the network's output"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("count", "lenet"), "did you mean 'lenet5'"),
        (("count", "lenet5", "--keep", "99"), "asks for 99 channels of 'conv1'"),
        (("count", "lenet5", "--input", "big"), "a shape such as 3x224x224; this is 'big'"),
        (("time",), "nothing to time; give a MODEL"),
        (("time", "lenet5", "--keep", "5", "--run", "x"), "--keep and --run both say"),
        (("time", "--run", "nowhere"), "nowhere is no run folder"),
        (("time", "lenet5", "--batch", "1;2"), "batch sizes such as 1,32; this is '1;2'"),
        (("time", "lenet5", "--batch", "0"), "numbers from 1 on"),
        (("time", "lenet5", "--device", "tpu"), "unknown device 'tpu'"),
        (("prune", "nonsense", "--out", "x"), "there is no recipe 'nonsense'"),
        (("prune", "demo", "--set", "prune.epoch=1", "--out", "x"), "did you mean 'epochs'"),
        (("demo", "--set", "typo=1", "--out", "x"), "typo: unknown key"),
        (("compare", "demo", "--methods", "rbp", "--set", "finetun.epochs=1", "--out", "x"), "finetun: unknown key"),
        (("compare", "demo", "--methods", "rbp", "--seeds", "0", "--out", "x"), "--seeds is how many runs"),
        (("reproduce", "cifar10", "--set", "preset=papier", "--out", "x"), "no preset 'papier'"),
        (("resume", "nowhere"), "is no run folder"),
        (("train", "vgg16-ilsvrc", "--out", "x"), r"has no \[pretrain\] section"),
    ],
)
def test_errors_are_one_message_and_a_code(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert re.search(message, captured.err)
    assert not list(tmp_path.iterdir())


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


def test_train_then_prune_from_its_weights(tmp_path: Path) -> None:
    sets = [word for item in QUICK for word in ("--set", item)]

    def rbprune(*words: str) -> dict[str, object]:
        command = [sys.executable, "-m", "rbprune", *words, *sets, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    dense = rbprune("train", "demo", "--out", str(tmp_path / "dense"))
    assert dense["macs_ratio"] == 1
    weights = tmp_path / "dense" / "model.safetensors"
    pruned = rbprune("prune", "demo", "--out", str(tmp_path / "pruned"), "--set", f"model.weights={weights}")
    assert pruned["dense_epochs"]["pretrain"] == 0  # type: ignore[index]
    assert pruned["error_before"] == pytest.approx(dense["error_after"])
    more = ("--set", f"model.weights={weights}", "--set", "pretrain.lr=1e-9")
    again = rbprune("train", "demo", "--out", str(tmp_path / "more"), *more)
    assert again["dense_epochs"]["pretrain"] > 0  # type: ignore[index]
    assert again["error_after"] == pytest.approx(dense["error_after"], abs=1), "it went on from the given weights"
