from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from rbprune.logging.tensorboard import TensorBoard


def test_written_values_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped, unused-ignore]

    with TensorBoard(tmp_path) as board:
        board.scalars(1, loss=0.5, val_error=None)
        board.scalars(2, loss=0.25)
        board.values(2, "rate", {"features.0": torch.tensor([0.0, 0.1, float("nan"), 1.0]), "empty": torch.empty(0)})
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(1, 0.5), (2, 0.25)]
    assert found.Tags()["scalars"] == ["loss"]
    assert found.Tags()["histograms"] == ["rate/features.0"]
    assert found.Histograms("rate/features.0")[0].histogram_value.num == 3


def test_no_folder_writes_nothing() -> None:
    board = TensorBoard(None)
    board.scalars(1, loss=0.5)
    board.values(1, "rate", {"a": torch.rand(3)})
    board.close()


def test_without_tensorboard_installed_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    board = TensorBoard(tmp_path / "tb")
    board.scalars(1, loss=0.5)
    board.close()
    board.close()
    assert not (tmp_path / "tb").exists()
