"""The page of a reproduction: our rows below the paper's, notes on what failed."""

from __future__ import annotations

import json
from pathlib import Path


def test_our_rows_stand_below_the_papers(folder: Path) -> None:
    found = json.loads((folder / "cifar10.json").read_text())
    rows = found["tables"][0]["rows"]
    names = [(row[0], row[1]) for row in rows]
    assert names[:2] == [("Baseline", "paper"), ("Baseline", "here")]
    assert names.index(("RBP", "here")) == names.index(("RBP", "paper")) + 1
    summary = json.loads((folder / "demo-rbp" / "summary.json").read_text())
    ours = rows[names.index(("RBP", "here"))]
    spent = summary["dense_epochs"]["prune"] + summary["dense_epochs"]["finetune"]
    left = "-".join(str(after) for _, after in summary["channels"].values())
    assert ours[2:] == [
        left,
        f"{summary['params_ratio']:.1f}x",
        f"{summary['macs_ratio']:.2f}x",
        f"{summary['error_after']:.2f}",
        f"{spent:.1f}",
    ]


def test_a_run_that_fails_costs_its_row_only(folder: Path) -> None:
    found = json.loads((folder / "cifar10.json").read_text())
    assert ["SBP", "here"] not in [row[:2] for row in found["tables"][0]["rows"]]
    assert "demo-slimming: slimming ranks by batch normalisation" in found["notes"][0]
    assert "slimming ranks by batch normalisation" in (folder / "cifar10.html").read_text()


def test_the_page_needs_nothing_else_and_the_table_is_there_as_text(folder: Path) -> None:
    page, text = (folder / "cifar10.html").read_text(), (folder / "cifar10.md").read_text()
    assert "<script" not in page and "rbprune reproduce cifar10" in page
    assert "| RBP | here |" in text and "**Error while fine-tuning**" in text
