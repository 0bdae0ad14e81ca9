"""Everything from outside, damaged in a few hundred ways: it is read, or refused by an error of ours; nothing hangs,
and nothing asks for memory on a stranger's word. ``make torture`` tries 10,000 of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS, Kind
from tests.fuzz.trial import MEMORY, fuzz

FEW = {"events": 40, "tar": 120, "index": 120, "list": 120, "classes": 120}
"""Variants of what takes longer to read; of the others there are 250."""


@pytest.mark.parametrize("kind", KINDS)
def test_only_errors_of_ours_come_out(kind: str, tmp_path: Path) -> None:
    found = fuzz(kind, FEW.get(kind, 250), tmp_path / "folder", seed=1)
    assert not found.foreign, "\n".join(found.foreign[:3])
    assert sum(found.refused.values()) or kind in ("events", "index"), "where damage is passed over by design"


def test_the_trial_would_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of somebody else, a hang and a hunger for memory."""

    def hungry(folder: Path, data: bytes) -> object:
        return bytearray(2 * MEMORY) if data != b"good" else None

    def hanging(folder: Path, data: bytes) -> object:
        while data != b"good":
            pass
        return None

    def foreign(folder: Path, data: bytes) -> object:
        if data != b"good":
            raise ValueError("somebody else's")
        return None

    monkeypatch.setattr("tests.fuzz.trial.SECONDS", 0.1)
    for read, told in ((hungry, "MemoryError"), (hanging, "TooLong"), (foreign, "somebody else's")):
        monkeypatch.setitem(KINDS, "probe", Kind(lambda folder: [b"good"], read))
        (first, *_) = fuzz("probe", 3, tmp_path).foreign
        assert told in first
