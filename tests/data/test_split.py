from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rbprune.data import split
from rbprune.errors import ConfigError


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=60), st.floats(0, 1), st.integers(0, 5))
def test_a_split_is_a_stratified_partition(labels: list[int], fraction: float, seed: int) -> None:
    y = torch.tensor(labels, dtype=torch.int64)
    val = int(fraction * len(labels))
    train, held = split(y, val, seed)
    assert len(held) == val
    assert sorted(train.tolist() + held.tolist()) == list(range(len(labels)))
    assert train.tolist() == sorted(train.tolist()) and held.tolist() == sorted(held.tolist())
    for label in set(labels):
        assert abs((y[held] == label).sum() - (y == label).sum() * val / len(labels)) < 1


def test_the_seed_decides_and_nothing_else() -> None:
    y = torch.arange(1000) % 10
    first = split(y, 100, 1)[1]
    torch.manual_seed(7)
    assert torch.equal(split(y, 100, 1)[1], first)
    assert not torch.equal(split(y, 100, 2)[1], first)
    assert not torch.equal(first, torch.arange(100))


def test_without_labels_a_number_is_enough() -> None:
    train, held = split(50, 20)
    assert (len(train), len(held)) == (30, 20)
    assert train.dtype == held.dtype == torch.int64


@pytest.mark.parametrize("val", [-1, 51])
def test_more_than_there_is_cannot_be_held_out(val: int) -> None:
    with pytest.raises(ConfigError, match=f"val={val}: between 0 and 50"):
        split(50, val)
