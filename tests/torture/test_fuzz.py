"""The long trial of everything from outside: ``make torture`` prints the table of docs/reliability-inputs.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS
from tests.fuzz.trial import fuzz

COUNT = int(os.environ.get("RBPRUNE_FUZZ", "10000"))


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_only_errors_of_ours_come_out_of_ten_thousand(kind: str, tmp_path: Path) -> None:
    found = fuzz(kind, COUNT, tmp_path / "folder")
    print(f"\n{found.line()}")
    assert not found.foreign, "\n".join(found.foreign[:3])
