"""The pages of docs/ and the README: their commands and snippets work, and they leave nothing out."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rbprune
from rbprune.cli.app import VERBS, app
from rbprune.settings.recipe import load_recipe, shipped
from tests.test_examples import DOCS, PAGES, ROOT, blocks

WORDS = ("Price", "Nat", "Site", "Stage", "Rate", "Dense epoch", "MAC", "Recipe", "Verdict", "Budget")


def command_lines() -> list[str]:
    """Every line that calls rbprune, with continued lines joined and the variables of its block filled in."""
    found = set()
    for block in (block for page in PAGES for block in blocks(page, "(?:bash|sh)")):
        given = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', block, re.MULTILINE))
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("rbprune "):
                whole = re.sub(r"\$(\w+)", lambda match, given=given: given[match[1]], re.split(r"\s+#\s", line)[0])
                found.add(whole.replace("seed=S ", "seed=0 ").strip())
    return sorted(found)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_on_the_pages_can_be_parsed(line: str) -> None:
    words = shlex.split(line)[1:]
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    assert command.__name__ == words[0]
    settings = bound.arguments.get("set", [])
    if bound.arguments.get("recipe") in shipped():
        assert load_recipe(bound.arguments["recipe"], settings).model.name


def test_the_page_of_commands_shows_every_verb() -> None:
    shown = {line.split()[1] for block in blocks(DOCS / "commands.md", "bash") for line in block.splitlines()}
    assert set(VERBS) - shown == set()


def test_your_own_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "your_own"}
    found = blocks(DOCS / "your-own.md", "python")
    assert len(found) == 4
    for block in found:
        exec(compile(block, "docs/your-own.md", "exec"), names)
    before = rbprune.trace(names["MyNet"](), torch.zeros(2, 1, 8, 8)).macs()
    assert names["result"].summary["macs_ratio"] == pytest.approx(2, rel=0.05)
    assert rbprune.trace(names["model"], torch.zeros(2, 1, 8, 8)).macs() < 0.55 * before


def test_the_readme_is_short_and_has_its_picture() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 75
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (ROOT / picture).is_file()


def test_the_glossary_explains_the_words_and_the_tutorial_says_them_first() -> None:
    glossary, tutorial = (DOCS / "glossary.md").read_text(), (DOCS / "tutorial.md").read_text()
    terms = re.findall(r"^\*\*([^*]+)\.\*\*", glossary, re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)
    assert set(WORDS) - {part for term in terms for part in term.split(", ")} == set()
    for word in ("price", "nats", "site", "stage", "rate", "dense epochs", "MAC", "budget", "recipe"):
        assert f"*{word}*" in tutorial, word


def test_the_pictures_are_those_of_the_recorded_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "choosing.py"), "draw", str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=120)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert len(drawn) == 5
    for name in drawn:
        assert (tmp_path / name).read_bytes() == (DOCS / "assets" / name).read_bytes(), name
