from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from rbprune.errors import ConfigError, DataError
from rbprune.integrations.host import count_examples_of, peek, refuse_compiled, refuse_unlike_pair

DATA = TensorDataset(torch.arange(12))


class Restless(TensorDataset):
    """Draws from every generator there is."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        random.random()
        np.random.rand()
        torch.rand(1)
        return super().__getitem__(index)


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_a_look_leaves_every_generator_as_it_was(generator: torch.Generator | None) -> None:
    loader = DataLoader(Restless(torch.arange(12)), 3, shuffle=True, generator=generator)

    def draws() -> list[object]:
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        if generator is not None:
            generator.manual_seed(0)
        return []

    draws()
    wanted = [[batch[0].tolist() for batch in loader], random.random(), np.random.rand(), torch.rand(1).item()]
    draws()
    seen = peek(loader, 2)
    found = [[batch[0].tolist() for batch in loader], random.random(), np.random.rand(), torch.rand(1).item()]
    assert found == wanted
    assert [batch[0].tolist() for batch in seen] == wanted[0][:2]


def test_a_loader_without_batches_is_refused() -> None:
    with pytest.raises(DataError, match=r"\(list\) yields no batch"):
        peek([], 2)


def test_examples_are_counted_as_they_are_drawn() -> None:
    assert count_examples_of(DataLoader(DATA, 5)) == 12
    some = torch.utils.data.SubsetRandomSampler(range(7))
    assert count_examples_of(DataLoader(DATA, 5, sampler=some)) == 7

    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(ConfigError, match="not known of this DataLoader; say it: dataset_size="):
        count_examples_of(DataLoader(Endless()))


def test_compiled_networks_are_refused() -> None:
    refuse_compiled(nn.Sequential(nn.Linear(1, 1)))
    model = nn.Sequential(nn.Linear(1, 1))
    model[0].compile()
    with pytest.raises(ConfigError, match="^0 was compiled by torch.compile"):
        refuse_compiled(model)
    with pytest.raises(ConfigError, match="^OptimizedModule was compiled by torch.compile"):
        refuse_compiled(torch.compile(nn.Linear(1, 1)))  # type: ignore[arg-type]


def test_batches_are_pairs() -> None:
    assert refuse_unlike_pair([1, 2]) == (1, 2)
    with pytest.raises(DataError, match="a training batch is a tuple of 3, not a pair.*unpack="):
        refuse_unlike_pair((1, 2, 3))
