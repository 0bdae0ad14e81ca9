from __future__ import annotations

from rbprune.utils.seeds import mix


def test_mix_gives_each_pair_its_own_64_bit_seed() -> None:
    seeds = {mix(seed, k) for seed in range(100) for k in range(100)}
    assert len(seeds) == 100 * 100
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert 0 <= mix(-1, 0) < 2**64
    flipped = [bin(mix(7, k) ^ mix(7, k + 1)).count("1") for k in range(200)]
    assert 30 < sum(flipped) / len(flipped) < 34
