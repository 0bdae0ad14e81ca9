"""What a run reads: the corrupt examples that were left out are told once."""

from __future__ import annotations

from rbprune.data.source import Skipped
from rbprune.train.state import RunData, RunState
from rbprune.train.stream import LoaderStream
from tests.networks import stripes


def test_what_was_left_out_is_told_once() -> None:
    told: list[str] = []
    stream, skipped = LoaderStream([stripes(2)]), Skipped()
    data = RunData(train=lambda size: stream, skipped=skipped)
    data.tell_skipped(told.append)
    assert told == []
    skipped.add(["a.jpg"])
    data.tell_skipped(told.append)
    data.tell_skipped(told.append)
    assert len(told) == 1 and "a.jpg" in told[0]
    RunData(train=lambda size: stream).tell_skipped(told.append)
    assert len(told) == 1


def test_what_the_log_tells_of_the_dense_network() -> None:
    state = RunState(error_before=5.0, val_error_before=6.0, dense_loss=0.1, explained=2.0)
    assert state.of_dense() == {"error": 5.0, "val_error": 6.0, "loss": 0.1, "explained": 2.0}


def test_the_lowest_validation_error_is_that_since_the_last_cut() -> None:
    state = RunState()
    state.validated(None)
    assert state.val_lowest is None
    state.validated(3.0)
    state.validated(9.0)  # after another cut
    for epoch, error in enumerate((8.0, 6.0, 7.0), 1):
        state.validated(error, recovery_epoch=epoch)
    assert state.val_error == 7.0
    assert state.val_lowest == {"val_error": 6.0, "epoch": 2}
    state.validated(None)
    assert state.val_error is None and state.val_lowest == {"val_error": 6.0, "epoch": 2}
