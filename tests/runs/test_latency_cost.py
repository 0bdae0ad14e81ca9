"""A run with a table of latencies meets its target in microseconds, and tells them everywhere."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rbprune import models, trace
from rbprune.errors import ConfigError
from rbprune.logging.console import summary_table
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.graph.test_latency_table import table_of
from tests.runs.quick import SMALL, events, summary_of

QUICK = (*SMALL, "pretrain.epochs=1", "prune.epochs=1", "finetune.epochs=0.5", "runtime.checkpoint_seconds=1000")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    table = table_of(trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28)), network="lenet5", input=[1, 28, 28])
    return table.save(tmp_path / "device.json")


def test_a_run_down_to_a_latency(tmp_path: Path, device: Path) -> None:
    settings = load_recipe("demo", (*QUICK, "prune.method=uniform", f"prune.latency={device}", "prune.latency_ratio=2"))
    console = Console(file=io.StringIO(), width=200)
    summary = start(settings, tmp_path / "run", console=console)
    assert summary == summary_of(tmp_path / "run")
    assert summary["latency_ratio"] == summary["latency_before"] / summary["latency_after"]
    assert 2 <= summary["latency_ratio"] <= 2.02
    assert "2.0" in summary["verdict"]["text"] and "fewer microseconds" in summary["verdict"]["text"]
    seen = events(tmp_path / "run")
    assert seen[0]["latency"] == summary["latency_before"]
    (stage,) = [event for event in seen if event["event"] == "stage"]
    assert stage["latency"] == summary["latency_after"]
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"microseconds {stage['latency_ratio']:.2f}x" in shown

    end = Console(file=io.StringIO(), width=200)
    summary_table(summary, end)
    table = end.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(rf"microseconds .* {summary['latency_ratio']:.2f}x", table)
    assert "Microseconds" in (tmp_path / "run" / "report.html").read_text()


def test_a_table_that_is_not_there_stops_a_run_before_it_begins(tmp_path: Path) -> None:
    settings = load_recipe("demo", (*QUICK, f"prune.latency={tmp_path / 'none.json'}", "prune.latency_ratio=2"))
    with pytest.raises(ConfigError, match=r"none.json'.*rbprune calibrate"):
        start(settings, tmp_path / "run", console=Console(file=io.StringIO()))
    assert not (tmp_path / "run" / "config.toml").exists()
