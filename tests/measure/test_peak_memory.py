"""Peak memory, against tensors whose sizes are known."""

from __future__ import annotations

import subprocess
import sys
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


TWICE = """
import torch
from rbprune.measure.peak_memory import peak_bytes
ones = lambda: torch.ones(8 << 20)
print(peak_bytes(lambda: (ones(), ones())), peak_bytes(lambda: [ones().sum() for _ in range(2)]))
"""


def test_two_at_once_count_together_and_one_after_the_other_do_not() -> None:
    """In a process of its own: where a heap has been used for hours, what is freed may not be taken again at once."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=True)
    together, apart = map(int, done.stdout.split())
    assert abs(together - 64 * MEGABYTE) < 2 * MEGABYTE
    assert abs(apart - 32 * MEGABYTE) < 2 * MEGABYTE


def test_where_the_system_does_not_tell_there_is_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_memory, "RESET", tmp_path / "missing" / "file")
    assert peak_bytes(lambda: take(1)) is None
    monkeypatch.setattr("sys.platform", "darwin")
    assert peak_bytes(lambda: take(1)) is None
    assert peak_bytes(lambda: take(1), torch.device("mps")) is None
