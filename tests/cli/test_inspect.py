"""``rbprune inspect``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import Refused, run

OWN = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

def example_inputs():
    return torch.zeros(2, 3, 16, 16)
"""


def test_inspect_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "resnet20-cifar") == 0
    table = capsys.readouterr().out
    assert "layer2.0.conv1" in table
    assert "inside (down)" in table
    assert "resnet20-cifar: 40.6 M MACs, 268.3 k parameters" in table
    assert "frozen: linear: the network's output" in table


def test_inspect_a_users_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    assert run("inspect", f"{tmp_path}/mine.py:net", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [site["site"] for site in result["sites"]] == ["0"]
    assert result["frozen"] == {"4": "the network's output"}
    macs, params = 14 * 14 * 3 * 9, 3 * 9
    assert (result["macs"], result["params"]) == (8 * macs + 32, 8 * params + 32)
    assert [(site["macs_per_channel"], site["params_per_channel"]) for site in result["sites"]] == [
        (macs + 4, params + 4)
    ]


def test_the_table_is_of_any_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "lenet5", "--cost", "params") == 0
    table = capsys.readouterr().out
    assert "parameters each" in table and "MACs each" not in table
    per_channel = 800 + 10  # fc1: weights of one output, and those of the last layer that read it
    row = next(line for line in table.splitlines() if line.split()[:1] == ["fc1"])
    assert f" {per_channel} " in row and f" {100 * per_channel * 500 / 430_500:.1f} % " in row


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("inspect", "lenet"), "did you mean 'lenet5'"),
        (("inspect", "lenet5", "--cost", "flops"), "unknown cost 'flops'; known are macs, params"),
        (("inspect", "lenet5", "--method", "rpb"), "unknown method 'rpb'; did you mean 'rbp'"),
        (("inspect", "lenet5", "--set", "prune.sums=true"), "--set changes the settings of a recipe, and 'lenet5' is"),
        (("inspect", "lenet5", "--input", "1xbig"), "a shape such as 3x224x224; this is '1xbig'"),
        (("inspect",), "inspect needs a MODEL, such as lenet5, or --run DIR and --site NAME"),
        (("inspect", "--site", "conv1"), "give --run DIR and --site NAME, and no MODEL"),
        (("inspect", "lenet5", "--run", "runs/x", "--site", "conv1"), "give --run DIR and --site NAME, and no MODEL"),
        (("inspect", "--run", "nowhere", "--site", "conv1"), "nowhere is no run folder"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)


def test_a_run_tells_why_its_channels_went(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "--run", str(whole), "--site", "conv2") == 0
    table = capsys.readouterr().out
    assert "conv2: stage 2 of rbp, 50 channels (" in table
    assert "evidence" in table and "goes" in table
    assert run("inspect", "--run", str(whole), "--site", "conv2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["channels"]) == 50 and found["method"] == "rbp"


def test_branches_are_listed_with_what_they_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "resnet20-cifar") == 0
    shown = capsys.readouterr().out
    assert "branch: layer1.1: 4.7 M MACs, 11.6 %" in shown
    assert "branch: layer2.0" not in shown, "its shortcut is not the identity"
    assert run("inspect", "resnet20-cifar", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["branches"][1] == {"block": "layer1.1", "macs": 2 * 16 * 16 * 9 * 1024, "params": 2 * 16 * 16 * 9}
    assert found["frozen_branches"] == {}


def test_the_table_says_what_a_share_is_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "resnet20-cifar") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("share: what all channels of a site cost, in the layers that make") for line in lines)
    rows = [line for line in lines if line.split()[:1] == ["layer1.0.conv1"]]
    assert len(rows) == 1 and rows[0].split()[-1] == "2", "one line of 80 columns, with the stage at its end"
    one = 2 * 16 * 9 * 1024  # of the convolution that makes a channel, and of the one that reads it
    assert f" {100 * 16 * one / 40_551_040:.1f} % " in rows[0]


@pytest.mark.parametrize(
    ("words", "method", "judged", "reason"),
    [
        (("resnet20-cifar",), "rbp", 14, None),
        (("resnet20-cifar10",), "rrbp", 9, "conv1, .* residual sum.*prune.sums=true"),
        (("resnet20-cifar10", "--set", "prune.sums=true"), "rrbp", 14, None),
        (("resnet20-cifar10", "--set", "prune.downsampling=false"), "rrbp", 7, "layer2.0.conv1, .*downsampling=true"),
        (("resnet20-cifar", "--method", "rrbp"), "rrbp", 12, "layer2.0.conv1, .*downsampling=true"),
        (("lenet5", "--method", "rrbp"), "rrbp", 0, "conv1, conv2, fc1: rrbp judges only what lies in residual"),
        (("lenet5", "--method", "uniform"), "uniform", 3, None),
    ],
)
def test_inspect_says_what_the_method_will_prune_and_why_not_the_rest(
    words: tuple[str, ...], method: str, judged: int, reason: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", *words) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"^{method} judges {judged} of \d+ sites", shown, re.MULTILINE)
    assert (re.search(rf"^left alone: {reason}", shown, re.MULTILINE) is not None) == (reason is not None)
    assert run("inspect", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == method
    assert sum(site["stage"] is not None for site in found["sites"]) == judged
    assert all((site["stage"] is None) == bool(site["left_alone"]) for site in found["sites"])


def test_inspect_takes_the_network_and_the_settings_of_a_recipe_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    recipe = f'[model]\nname = "{tmp_path}/mine.py:net"\n[data]\nname = "mnist-subset"\n[prune]\nkeep = ["0"]\n'
    (tmp_path / "mine.toml").write_text(recipe)
    assert run("inspect", f"{tmp_path}/mine.toml", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sites"] == [] and set(found["frozen"]) == {"0", "4"}
