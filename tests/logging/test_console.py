from __future__ import annotations

import doctest
import io
from pathlib import Path

import pytest
from rich.console import Console

from rbprune.logging import console as module
from rbprune.logging.console import cost_line, stage_line, summary_table
from tests.report.fake import write_run


def printed(summary: dict[str, object], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    summary_table(summary, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_docstring_examples() -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted and not outcome.failed


def test_stage_line_of_one_site() -> None:
    event = {
        "stage": 2,
        "stages": 13,
        "sites": ["features.7"],
        "channels": {"features.7": [128, 97]},
        "macs_ratio": 1.42,
        "params_ratio": 1.31,
        "val_error": 8.12,
        "seconds": 33.1,
    }
    assert stage_line(event) == (
        "stage 3/13  features.7  128 -> 97   MACs 1.42x  parameters 1.31x  val error 8.12 %  (33 s)"
    )


def test_stage_line_of_a_cut_that_was_measured() -> None:
    event = {
        "stage": 0,
        "stages": 3,
        "channels": {"conv1": [20, 12]},
        "macs_ratio": 1.6,
        "forecast": 0.0213,
        "measured": 0.0262,
        "taken_back": 0,
        "val_error": 3.5,
    }
    assert stage_line(event) == (
        "stage 1/3  conv1  20 -> 12  MACs 1.60x  forecast +0.021, measured +0.026 nats per example  val error 3.50 %"
    )
    taken_back = stage_line({**event, "forecast": None, "measured": -0.004, "taken_back": 3})
    assert "MACs 1.60x  measured -0.004 nats per example  3 channels taken back  val error" in taken_back
    assert "nats" not in stage_line({**event, "forecast": None, "measured": None})
    assert "1 channel taken back" in stage_line({**event, "taken_back": 1})


def test_stage_line_of_many_sites() -> None:
    channels = {f"layer{i}": [30, 12] for i in range(25)}
    assert stage_line({"stage": 0, "sites": list(channels), "channels": channels}) == "stage 1  25 sites  750 -> 300"


def test_stage_line_of_an_empty_event() -> None:
    assert stage_line({}) == "stage"
    assert stage_line({"stage": None, "channels": None, "val_error": None}) == "stage"


@pytest.mark.parametrize("sites", [3, 25, 90])
def test_summary_fits_a_terminal(tmp_path: Path, sites: int) -> None:
    summary = write_run(tmp_path, sites=sites, per_stage=sites)
    out = printed(summary)
    assert max(map(len, out.splitlines())) <= 80
    for figure in ("125.5 M", "59.8 M", "2.10x", "2.00x", "6.61 %", "6.95 %", "+0.34 points", "dense epochs"):
        assert figure in out
    assert ("more sites" in out) == (sites > 40)


def test_summary_with_long_and_markup_names() -> None:
    out = printed({"channels": {"[bold]" + "x" * 200: [4, 1], "b": None, "[/]": [0, 0]}, "undecided": {"b": 0.5}})
    assert "[bold]xx" in out and "[/]" in out and max(map(len, out.splitlines())) <= 80


def test_summary_of_nothing() -> None:
    assert "MACs" in printed({})


def test_summary_on_a_terminal_that_knows_ascii_only(tmp_path: Path) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    summary_table({**write_run(tmp_path, sites=3), "error_after": None}, Console(file=file, width=80))
    file.flush()


def test_the_cost_is_one_plain_line() -> None:
    spent = {"dense_epochs": {"pretrain": 12.0, "prune": 0.25, "finetune": 0.0}}
    assert cost_line(spent) == "cost: 12.2 dense epochs (pretraining 12 + pruning 0.25)"
    assert cost_line({}) == "cost: unknown"
    again = {**spent, "macs_ratio_total": 4.338, "params_ratio_total": 7.5}
    assert cost_line(again).endswith(
        "; with the earlier cuts 4.34x fewer MACs and 7.50x fewer parameters than the original network"
    )
    assert "cost: 12.2 dense epochs" in printed(spent)


def test_removed_branches_are_named_in_the_line_of_a_stage_and_in_the_summary() -> None:
    event = {"stage": 0, "stages": 3, "channels": {"layer1.1": [1, 1], "layer2.1": [1, 0], "layer3.2": [1, 0]}}
    assert stage_line(event) == "stage 1/3  3 sites  3 -> 1  layer2.1, layer3.2: whole branches gone"
    console = Console(file=io.StringIO(), width=120)
    summary_table({"removed_blocks": ["layer2.1"], "channels": {"layer2.1.conv1": [16, 0]}}, console)
    assert "layer2.1: whole branch gone" in console.file.getvalue()


def test_a_measured_latency_is_a_row_beside_the_costs() -> None:
    console = Console(file=io.StringIO(), width=100)
    summary_table({"measured_latency": {"batch": 1, "dense_ms": 4.5, "pruned_ms": 1.5, "ratio": 3.0}}, console)
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [row.split() for row in rows if "latency" in row] == [
        ["latency,", "batch", "1", "4.5", "ms", "1.5", "ms", "3.00x"]
    ]
