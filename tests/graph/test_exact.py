"""Masked and physically pruned networks are the same function."""

from __future__ import annotations

import copy

import pytest
import torch

from rbprune import apply_plan, models, trace
from rbprune.graph import Plan
from tests.networks import random_drop, relative_error, scramble, tiny_cnn

NETWORKS = {
    "lenet5": (1, 28, 28),
    "vgg16-cifar": (3, 32, 32),
    "resnet20-cifar": (3, 32, 32),
    "resnet20b-cifar": (3, 32, 32),
    "resnet56-cifar": (3, 32, 32),
    "torchvision:vgg16_bn": (3, 64, 64),
    "torchvision:resnet50": (3, 64, 64),
}


@pytest.mark.parametrize(("name", "shape"), NETWORKS.items())
def test_masked_equals_removed(name: str, shape: tuple[int, ...]) -> None:
    model = scramble(models.build(name))
    fresh = copy.deepcopy(model)
    x = torch.randn(2, *shape, dtype=torch.float64)
    graph = trace(model, x)
    drop = random_drop(graph)
    assert len(drop) == len(graph.sites)
    macs = graph.macs()
    with torch.no_grad():
        dense = model(x)
        with graph.mask(drop):
            masked = model(x)
        plan = graph.remove(drop)
        removed = model(x)
        replayed = apply_plan(fresh, Plan.from_json(plan.to_json()))(x)
    assert relative_error(masked, removed) < 1e-9
    assert torch.equal(removed, replayed)
    assert relative_error(dense, masked) > 1e-3, "the mask did nothing, so the comparison shows nothing"
    assert graph.macs() < macs


def test_gradients_of_what_is_left_agree() -> None:
    model = scramble(tiny_cnn()).train()
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    graph = trace(model, x)
    drop = random_drop(graph)
    with graph.mask(drop):
        model(x).square().sum().backward()
    kept = {name: [c for c in range(graph[name].channels) if c not in gone] for name, gone in drop.items()}
    wanted = model[4].weight.grad[kept["4"]][:, kept["0"]]
    model.zero_grad()
    graph.remove(drop)
    model(x).square().sum().backward()
    assert relative_error(wanted, model[4].weight.grad) < 1e-9


def test_one_site_after_another_is_the_same_as_all_at_once() -> None:
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    once, steps = scramble(tiny_cnn()), scramble(tiny_cnn())
    steps.load_state_dict(once.state_dict())
    first, second = trace(once, x), trace(steps, x)
    drop = random_drop(first)
    first.remove(drop)
    for name, gone in reversed(drop.items()):
        for channel in sorted(gone, reverse=True):
            plan = second.remove({name: [channel]})
    assert plan == first.plan()
    assert torch.equal(once(x), steps(x))
