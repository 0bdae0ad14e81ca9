"""One finished run that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import QUICK, quiet


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted; nobody may change it."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(load_recipe("demo", QUICK), folder, console=quiet())
    return folder
