"""Runs of a small table that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reproduce.small import small_table


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_table(tmp_path_factory)
