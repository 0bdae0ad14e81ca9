"""The trial: runs killed and damaged. A short version in ``make test``; ``make torture`` is the long one.

How long it is, is told by the environment: RBPRUNE_TORTURE_KILLS (at random moments, beside all named ones) and
RBPRUNE_TORTURE_CORRUPTIONS.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import QUICK, stop_after
from tests.torture.corruptions import (
    CorruptionFigures,
    said_of_checkpoint,
    said_of_finished,
    said_of_settings,
    torture_by_corruptions,
)
from tests.torture.kills import NAMED, KillFigures, torture_by_kills


def check_kills(figures: KillFigures) -> None:
    print(f"\n{figures.line()}")
    assert (figures.unequal, figures.leftovers, figures.errors) == ([], [], []), figures.line()


def check_corruptions(figures: CorruptionFigures) -> None:
    print(f"\n{figures.line()}")
    assert (figures.silent, figures.foreign) == ([], []), figures.line()


def corrupt(count: int, whole: Path, folder: Path) -> CorruptionFigures:
    """Half of the damages to a finished run, half to one that was stopped in its second stage."""
    figures, chance = CorruptionFigures(), random.Random(count)
    finished, stopped = Path(shutil.copytree(whole, folder / "finished")), folder / "stopped"
    files = sorted(path for path in finished.rglob("*") if path.is_file())
    assert len(files) == 9, files
    torture_by_corruptions(count // 2, files, lambda: said_of_finished(finished), chance, figures)
    with pytest.MonkeyPatch.context() as patched:
        stop_after(55, load_recipe("demo", QUICK), stopped, patched)
    files = sorted(max((stopped / "checkpoints").iterdir()).iterdir())
    assert len(files) == 3, files
    torture_by_corruptions(3 * count // 8, files, lambda: said_of_checkpoint(stopped), chance, figures)
    settings = RunFolder(stopped).read_settings()
    config = [stopped / "config.toml"]
    torture_by_corruptions(count // 8, config, lambda: said_of_settings(stopped, settings), chance, figures)
    return figures


def test_some_kills(tmp_path: Path) -> None:
    check_kills(torture_by_kills(3, 1, tmp_path, seed=1))


def test_some_corruptions(whole: Path, tmp_path: Path) -> None:
    check_corruptions(corrupt(160, whole, tmp_path))


@pytest.mark.torture
@pytest.mark.slow
def test_many_kills(tmp_path: Path) -> None:
    check_kills(torture_by_kills(len(NAMED), int(os.environ.get("RBPRUNE_TORTURE_KILLS", 50)), tmp_path))


@pytest.mark.torture
@pytest.mark.slow
def test_many_corruptions(whole: Path, tmp_path: Path) -> None:
    check_corruptions(corrupt(int(os.environ.get("RBPRUNE_TORTURE_CORRUPTIONS", 2000)), whole, tmp_path))
