"""Peak memory, against tensors whose sizes are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rbprune.measure import peak_memory
from rbprune.measure.peak_memory import peak_bytes

MEGABYTE = 1 << 20


def take(megabytes: int) -> None:
    torch.ones(megabytes * MEGABYTE // 4)


@pytest.mark.parametrize("megabytes", [20, 80])
def test_the_peak_is_what_was_taken_even_if_it_was_given_back(megabytes: int) -> None:
    take(200)  # an earlier and higher peak does not count
    found = peak_bytes(lambda: take(megabytes))
    assert found is not None
    assert abs(found - megabytes * MEGABYTE) < 2 * MEGABYTE


def test_two_at_once_count_together_and_one_after_the_other_do_not() -> None:
    together = peak_bytes(lambda: (torch.ones(8 * MEGABYTE), torch.ones(8 * MEGABYTE)))
    apart = peak_bytes(lambda: [take(32) for _ in range(2)])
    assert together is not None
    assert apart is not None
    assert abs(together - 64 * MEGABYTE) < 2 * MEGABYTE
    assert abs(apart - 32 * MEGABYTE) < 2 * MEGABYTE


def test_where_the_system_does_not_tell_there_is_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_memory, "RESET", tmp_path / "missing" / "file")
    assert peak_bytes(lambda: take(1)) is None
    monkeypatch.setattr("sys.platform", "darwin")
    assert peak_bytes(lambda: take(1)) is None
    assert peak_bytes(lambda: take(1), torch.device("mps")) is None
