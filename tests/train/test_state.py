"""What a run reads."""

from __future__ import annotations

from rbprune.data.source import Skipped
from rbprune.train.state import RunData
from tests.train.small import small_stream


def test_corrupt_examples_are_told_once() -> None:
    told: list[str] = []
    skipped = Skipped()
    data = RunData(train=lambda size: small_stream(), skipped=skipped)
    data.tell_skipped(told.append)
    skipped.add(["a.jpg"])
    data.tell_skipped(told.append)
    data.tell_skipped(told.append)
    assert told == ['1 corrupt example left out (data.corrupt = "skip"): a.jpg']
    RunData(train=data.train).tell_skipped(told.append)
    assert len(told) == 1
