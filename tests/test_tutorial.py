"""docs/tutorial.md: its files are what it says, and its commands run from start to end in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import rbprune
from rbprune.settings.recipe import load_recipe
from tests.cli.command import run
from tests.test_examples import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page() -> list[tuple[str, str, str]]:
    """Every block of the page: its language, the file that it is, and its text."""
    return BLOCK.findall(PAGE.read_text())


def write_files(folder: Path) -> None:
    """The files that the reader has made when all is read."""
    for _, name, text in page():
        if name:
            (folder / name).write_text(text)


def test_the_files_of_the_tutorial_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "nets.py", "train.py"]
    settings = load_recipe("mine.toml", ["prune.macs_ratio=3"])
    assert settings.model.weights == tomllib.loads((tmp_path / "mine.toml").read_text())["model"]["weights"]
    compile((tmp_path / "train.py").read_text(), "train.py", "exec")
    assert f'"{settings.model.weights}"' in (tmp_path / "train.py").read_text()
    model = rbprune.models.build(settings.model.name)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_what_can_go_is_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    assert run("inspect", "nets.py:make", "--input", "1x28x28") == 0
    printed = re.sub(r"[^\w.%:/' ]+", " ", capsys.readouterr().out)
    shown = next(text for language, _, text in page() if language == "text" and "frozen" in text)
    for line in shown.splitlines():
        words = re.sub(r"[^\w.%:/' ]+", " ", line).split()
        assert r" ".join(words) in " ".join(printed.split()), line


def test_the_commands_of_the_tutorial_are_those_that_are_tested() -> None:
    lines = [line for language, _, text in page() if language == "bash" for line in text.splitlines()]
    verbs = ["train.py", "inspect", "prune", "compare", "export", "time"]
    assert [line.split()[1] for line in lines] == verbs


@pytest.mark.slow
def test_the_tutorial_runs_from_start_to_end(tmp_path: Path) -> None:
    """About three minutes of one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    programs = {"python": [sys.executable], "rbprune": [sys.executable, "-m", "rbprune"]}
    for language, name, text in page():
        if name:
            (tmp_path / name).write_text(text)
            continue
        commands: list[list[str]] = []
        if language == "bash":
            commands = [[*programs[words[0]], *words[1:]] for words in map(shlex.split, text.splitlines())]
        elif language == "python":
            commands = [[sys.executable, "-c", text]]
        for command in commands:
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800)
            assert done.returncode == 0, (command, done.stderr)
    summary = json.loads((tmp_path / "runs" / "three" / "summary.json").read_text())
    assert summary["macs_ratio"] == pytest.approx(3, rel=0.01)
    assert summary["error_after"] < summary["error_before"] + 1
    found = json.loads((tmp_path / "runs" / "compare" / "compare.json").read_text())
    assert "tp-magnitude" in json.dumps(found)
    assert (tmp_path / "hub" / "model.onnx").is_file()
