"""One finished run and one that was stopped, which several tests read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import QUICK, quiet, stop_after


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted; nobody may change it."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(load_recipe("demo", QUICK), folder, console=quiet())
    return folder


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its second stage; nobody may change it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        stop_after(55, load_recipe("demo", QUICK), folder, patched)
    return folder


@pytest.fixture
def copied(stopped: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))
