"""Random networks and targets: every target is met within its bound, or refused with what can be reached."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Pruner, models
from rbprune.errors import OutOfReachError
from rbprune.graph.cost import COSTS, Cost, CountedCost
from rbprune.models.resnet_cifar import ResNetCifar
from tests.networks import tiny_cnn

TOLERANCE = 0.01
"""By how much less than the target may be left, as a part of it, where single channels are not dearer than that."""
PAIRS = 40
STEPS = 12
"""Training steps of a stage of ``rbp`` and ``ibp``: a few, so that there is something to rank by."""
COUNTED = [name for name, cost in COSTS.items() if isinstance(cost, CountedCost)]
"""Costs that need no table of a device."""
METHODS = ("uniform", "l1", "taylor", "random", "rbp", "ibp")


def _plain(channels: int) -> Callable[[], nn.Module]:
    return lambda: tiny_cnn(channels)


class Branches(nn.Module):
    """Two branches side by side, a depthwise convolution and a residual sum, for images of 1 x 8 x 8."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.left, self.right = nn.Conv2d(width, width, 1), nn.Conv2d(width, 2 * width, 3, padding=1)
        self.depth = nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width)
        self.inner, self.back = nn.Conv2d(3 * width, 2 * width, 3, padding=1), nn.Conv2d(2 * width, 3 * width, 1)
        self.head = nn.Linear(3 * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(self.depth(torch.cat([self.left(x), self.right(x)], 1)))
        x = F.relu(x + self.back(F.relu(self.inner(x))))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def _torchvision(name: str) -> Callable[[], nn.Module]:
    return lambda: models.build(f"torchvision:{name}", classes=3)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "tiny 6": (_plain(6), (1, 8, 8), True),
    "tiny 24": (_plain(24), (1, 8, 8), True),
    "branches 8": (lambda: Branches(8), (1, 8, 8), True),
    "branches 20": (lambda: Branches(20), (1, 8, 8), True),
    "resnet 8": (lambda: ResNetCifar(8, classes=3), (3, 16, 16), True),
    "squeezenet": (_torchvision("squeezenet1_1"), (3, 64, 64), False),
    "mobilenet": (_torchvision("mobilenet_v3_small"), (3, 32, 32), False),
}
"""How each is made, the shape of an example, and whether it is small enough to be trained here."""


def drawn(number: int) -> tuple[str, str, str, float]:
    """A network, a method, a cost and a ratio between 1.2 and 8, always the same for a number."""
    chance = random.Random(number)
    network = chance.choice(list(NETWORKS))
    trains = NETWORKS[network][2]
    method = chance.choice([m for m in METHODS if trains or m not in ("rbp", "ibp")])
    return network, method, chance.choice(COUNTED), round(1.2 * (8 / 1.2) ** chance.random(), 3)


def dearest_channel(pruner: Pruner, cost: Cost) -> float:
    """The most that goes with one channel, in any network on the way: one as it is left knows no dearer ones than the
    dense one, so it is asked before anything is cut."""
    sites = [name for names in pruner.stages for name in names]
    return max(cost.per_channel(pruner.graph, pruner.graph[name]) for name in sites)


def prune_to(network: str, method: str, cost: str, ratio: float, seed: int) -> tuple[float, float, float]:
    """The cost that is left, the most that may be left, and what the dearest channel costs."""
    make, shape, _ = NETWORKS[network]
    torch.manual_seed(seed)
    model, measured = make(), COSTS[cost]
    images, labels = torch.randn(64, *shape), torch.randint(3, (64,))
    given: dict[str, Any] = {f"{cost}_ratio": ratio}
    pruner = Pruner(model, images[:2], dataset_size=64, loss_fn=F.cross_entropy, method=method, **given)
    limit, dearest = measured.total(pruner.graph) / ratio, dearest_channel(pruner, measured)
    for stage in pruner:
        optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3))
        batches = [(images[:32], labels[:32]), (images[32:], labels[32:])] * (STEPS // 2)
        if stage.trains:
            for inputs, targets in islice(batches, STEPS):
                loss = F.cross_entropy(model(inputs), targets) + stage.kl(targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        elif stage.observes:
            stage.observe(batches[:2], F.cross_entropy)
        stage.finish(batches=[images[:32]])
    return measured.total(pruner.graph), limit, dearest


@pytest.mark.filterwarnings("ignore:every channel of")
@pytest.mark.parametrize("number", range(PAIRS))
def test_a_target_is_met_within_its_bound_or_refused_with_what_can_be_reached(number: int) -> None:
    network, method, cost, ratio = drawn(number)
    try:
        left, limit, dearest = prune_to(network, method, cost, ratio, number)
    except OutOfReachError as error:
        told = re.search(
            r"\(([\d.]+)x fewer\) are left when every layer .* ask for less \(prune\.(\w+)_ratio\)", str(error)
        )
        assert told is not None, str(error)
        reachable = float(told[1])
        assert told[2] == cost and reachable < ratio
        if reachable >= 1.02:  # what is said to be reachable is
            left, limit, _ = prune_to(network, method, cost, 0.99 * reachable, number)
            assert left <= limit * (1 + 1e-9)
        return
    assert left <= limit * (1 + 1e-9), f"{drawn(number)}: {left:g} of at most {limit:g} are left"
    assert left >= limit - max(TOLERANCE * limit, dearest), f"{drawn(number)}: only {left:g} of {limit:g} are left"


def test_the_pairs_are_many_and_of_all_kinds() -> None:
    pairs = [drawn(number) for number in range(PAIRS)]
    assert len(set(pairs)) == PAIRS
    assert {pair[0] for pair in pairs} == set(NETWORKS) and {pair[1] for pair in pairs} == set(METHODS)
    assert min(pair[3] for pair in pairs) < 1.6 and max(pair[3] for pair in pairs) > 6
