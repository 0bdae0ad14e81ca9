from __future__ import annotations

import pytest
import torch

from rbprune.errors import ConfigError, DataError
from rbprune.utils.seeds import check_order, mix


def test_mix_gives_each_pair_its_own_64_bit_seed() -> None:
    seeds = {mix(seed, k) for seed in range(100) for k in range(100)}
    assert len(seeds) == 100 * 100
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert 0 <= mix(-1, 0) < 2**64
    flipped = [bin(mix(7, k) ^ mix(7, k + 1)).count("1") for k in range(200)]
    assert 30 < sum(flipped) / len(flipped) < 34


def test_the_last_batch_may_be_smaller() -> None:
    assert check_order(torch.arange(10), 4, 0, 10) == 3
    assert check_order(torch.arange(0), 4, 0, 10) == 0


@pytest.mark.parametrize(("order", "message"), [([0, 10], "from 0 to 10, but the data has 10"), ([-1], "from -1 to")])
def test_an_index_that_does_not_exist_is_named(order: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_order(torch.tensor(order), 4, 0, 10)


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        check_order(torch.arange(10), 0, 0, 10)
    with pytest.raises(ConfigError, match="0 to 3, got 4"):
        check_order(torch.arange(10), 4, 4, 10)
