"""Whole files or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbprune.export.staging import publish, staging


def test_after_an_error_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyError), staging(tmp_path / "a" / "b") as place:
        (place / "half.onnx").write_text("half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_stays_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(KeyError), staging(tmp_path):
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_published_file_stays_and_the_rest_goes(tmp_path: Path) -> None:
    with staging(tmp_path / "out") as place:
        (place / "done").write_text("done")
        (place / "scratch").write_text("scratch")
        publish(place / "done", tmp_path / "out" / "final")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["final"]
