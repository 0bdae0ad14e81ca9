"""A small trained network on pictures whose class is their brightest third, and the plain loop to compare with."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune.methods import StageResult

SIZE, BATCH, STEPS, SEED = 256, 64, 40, 5


@lru_cache
def data() -> TensorDataset:
    images = torch.randn(SIZE, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return TensorDataset(images, images[:, 0].unflatten(1, (3, 2)).mean((2, 3)).argmax(1))


def loader() -> DataLoader[tuple[Tensor, ...]]:
    """Batches in their order, which draw no random number that training would miss."""
    return DataLoader(data(), BATCH, generator=torch.Generator())


def fresh() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 10, 3), nn.BatchNorm2d(10), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(40, 3)),
    )


@lru_cache
def _trained() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fresh()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for inputs, labels in chain.from_iterable(repeat(list(loader()), 15)):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return model


def trained() -> nn.Sequential:
    return copy.deepcopy(_trained())


def first_batches() -> list[Any]:
    return list(islice(loader(), 4))


def endless() -> Iterator[Any]:
    """Epoch after epoch, as a trainer reads it."""
    return chain.from_iterable(repeat(list(loader())))


def plain_loop(model: nn.Module, lr: float = 2e-3, **settings: Any) -> list[StageResult]:
    """The loop of the README, with one optimizer of the weights whose state follows all cuts."""
    pruner = rbprune.Pruner(model, data().tensors[0][:2], dataset_size=SIZE, loss_fn=F.cross_entropy, **settings)
    pruner.measure(first_batches())
    optimizer, batches, results = torch.optim.Adam(model.parameters(), lr=lr), endless(), []
    torch.manual_seed(SEED)
    for stage in pruner:
        own = stage.optimizer(stage.settings.step_size)
        for inputs, labels in stage.batches(batches, STEPS):
            loss = F.cross_entropy(model(inputs), labels) + stage.kl()
            optimizer.zero_grad()
            if own is not None:
                own.zero_grad()
            loss.backward()
            optimizer.step()
            if own is not None:
                own.step()
        results.append(stage.finish(optimizer=optimizer))
    return results


def hooks_on(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
