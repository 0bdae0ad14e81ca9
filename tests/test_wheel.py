"""The wheel alone, away from the checkout: it holds all that the demo needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_examples import ROOT


def call(folder: Path, *words: str, **environment: str) -> str:
    """What a command prints that must end well, run in a folder and without the checkout on Python's path."""
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "PYTHONSAFEPATH": "1", **environment}
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_the_wheel_alone_runs_the_demo(tmp_path: Path) -> None:
    """It is built as ``make wheel`` does, and unpacked beside the dependencies that are installed here."""
    call(tmp_path, sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    installed, away = tmp_path / "installed", tmp_path / "away"
    away.mkdir()
    call(tmp_path, sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(installed), str(wheel))
    path = {"PYTHONPATH": str(installed)}
    where = call(away, sys.executable, "-c", "import rbprune; print(rbprune.__file__)", **path)
    assert Path(where.strip()).is_relative_to(installed), "not the checkout"
    call(away, sys.executable, "-m", "rbprune", "demo", "--out", "runs/demo", **path)
    summary = json.loads((away / "runs" / "demo" / "summary.json").read_text())
    assert summary["verdict"]["level"] == "good"
    assert summary["macs_ratio"] > 10
    assert (away / "runs" / "demo" / "report.html").stat().st_size > 10_000
    told = call(away, sys.executable, "-m", "rbprune", "evaluate", "runs/demo", **path)
    assert "as the folder says (error, macs, params)" in told
