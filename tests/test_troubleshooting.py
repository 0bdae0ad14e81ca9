"""docs/troubleshooting.md has an entry for every error, reason and verdict that the code can tell."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re

import pytest
import torch

import rbprune
from rbprune.errors import RbpruneError
from rbprune.graph.reasons import REMEDIES, Kind
from rbprune.methods.channel_record import ChannelEvidence, JudgedSite
from tests.test_examples import DOCS, ROOT


def trouble() -> str:
    return " ".join((DOCS / "troubleshooting.md").read_text().split())


def all_errors() -> set[str]:
    """The names of all errors that rbprune defines."""
    for module in pkgutil.walk_packages(rbprune.__path__, "rbprune."):
        if "__main__" not in module.name and "embedded.make" not in module.name:
            importlib.import_module(module.name)
    waiting, found = [RbpruneError], set()
    while waiting:
        for error in waiting.pop().__subclasses__():
            if error.__module__.startswith("rbprune."):
                found.add(error.__name__)
                waiting.append(error)
    return found


def test_troubleshooting_has_an_entry_for_every_error() -> None:
    headings = set(re.findall(r"^### `(\w+)`$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE))
    assert len(all_errors()) > 15
    assert all_errors() - headings == set()


def test_troubleshooting_has_a_row_for_every_kind_of_reason() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| [^|]+ \| [^|]+ \|$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(kind.name for kind in Kind)
    assert set(REMEDIES) <= set(Kind)


def sentences(module: str, functions: str) -> list[str]:
    """The parts of at least three words of the texts that these functions can return, without what is filled in."""
    tree = ast.parse((ROOT / "src" / "rbprune" / module).read_text())
    found: list[str] = []
    for function in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
        if not re.fullmatch(functions, function.name):
            continue
        body = function.body[1:] if ast.get_docstring(function) else function.body
        for node in (node for statement in body for node in ast.walk(statement)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(" ".join(node.value.split()).strip(" ;,:."))
    return [text for text in found if len(text.split()) >= 3]


VERDICTS = [
    *sentences("train/outcome.py", "judge_run|_missed|_why_nothing|_kept_back|_remedy"),
    *sentences("runs/search_summary.py", "judge_search"),
]


def test_the_sentences_of_verdicts_are_found() -> None:
    assert len(VERDICTS) > 15
    assert "Better than the dense network by" in VERDICTS


@pytest.mark.parametrize("sentence", VERDICTS)
def test_troubleshooting_has_every_sentence_of_a_verdict(sentence: str) -> None:
    """A sentence that is new in the code needs an entry: what it means, and what to do."""
    assert sentence in trouble()


def test_troubleshooting_has_every_verdict_on_a_channel() -> None:
    either = torch.tensor([False, True])
    gone, asked, doubt = (column.flatten() for column in torch.meshgrid(either, either, either, indexing="ij"))
    nothing = torch.zeros(8)
    evidence = ChannelEvidence(nothing, nothing, doubt)
    words = set(JudgedSite(tuple(range(8)), nothing, asked, {}, evidence, gone).verdicts())
    assert len(words) >= 4
    for word in words:
        assert f"| `{word}` |" in trouble()
