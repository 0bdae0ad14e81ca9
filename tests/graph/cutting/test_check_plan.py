"""Whether a plan fits a network, before anything is cut; the network stays as it is where it does not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune import Plan, apply_plan, trace
from rbprune.errors import ModelError
from rbprune.graph.cutting.check_plan import check_plan
from rbprune.graph.layer_table import counts_of
from tests.graph.cutting.mutations import mutated
from tests.networks import tiny_cnn

X = torch.zeros(1, 1, 8, 8)


def everything(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the numbers of a network."""
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return tensors, {name: counts_of(module) for name, module in model.named_modules()}


def is_the_same(model: nn.Module, before: tuple[dict[str, Tensor], dict[str, Any]]) -> bool:
    tensors, counts = everything(model)
    same = all(torch.equal(tensors[name], tensor) for name, tensor in before[0].items())
    return same and counts == before[1] and "_rbprune_cuts" not in vars(model)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan({"0.weight": {"0": [-1]}}), "-1 is no position"),
        (Plan({"0.weight": {"0": [0], "7": [0]}}), "position 0 of '0.weight' .dimension 7., which has fewer"),
        (Plan({"0.forward": {"0": [0]}}), "changes '0.forward', which this Sequential does not have"),
        (Plan({"0.weight": {"0": [0]}}, {"nowhere": {"out": 1}}), "changes 'nowhere'"),
        (Plan({}, {"0": {"out": 7}}), "leaves '0' a width of 7 .out., where it has 6"),
        (Plan({}, {"0": {"forward": 1}}), "sets 'forward' of '0', and this Conv2d counts no channels there"),
        (Plan({"0.weight": {"0": [0, 1]}}, {"0": {"out": 2}}), "contradicts itself: it leaves 'bias' of '0'"),
        (Plan({"0.weight": {"0": [0]}, "0.bias": {"0": [0]}}, {"0": {"out": 2}}), "its widths ask for"),
        (Plan({}, {"0": {"out_channels": 2, "in_channels": 3}}), "leaves|widens|changes in_channels"),
    ],
)
def test_a_plan_that_does_not_fit_changes_nothing(plan: Plan, message: str) -> None:
    model = tiny_cnn()
    before = everything(model)
    with pytest.raises(ModelError, match=message):
        apply_plan(model, plan)
    assert is_the_same(model, before)


def test_a_plan_that_fits_passes_and_nothing_is_cut_yet() -> None:
    plan = trace(tiny_cnn(), X).remove({"0": [1, 3], "4": [0, 5, 11]})
    model = tiny_cnn()
    before = everything(model)
    check_plan(model, plan)
    assert is_the_same(model, before)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cuts", [1, 2])
def test_a_plan_without_a_checksum_cuts_whole_or_not_at_all(seed: int, cuts: int) -> None:
    """Plans of before have none: every change is refused by name, or is another plan that the network can run with."""
    first = tiny_cnn()
    graph = trace(first, X)
    graph.remove({"0": [1, 3], "4": [0, 5, 11]})
    if cuts == 2:  # its widths go by attribute
        graph = trace(first, X)
        graph.remove({"0": [0], "4": [1]})
    raw = json.loads(graph.history().plan.to_json())
    del raw["sha256"]
    chance, refused = random.Random(seed), 0
    for _ in range(150):
        model = tiny_cnn()
        before = everything(model)
        try:
            apply_plan(model, Plan.from_json(json.dumps(mutated(raw, chance))))
        except ModelError:
            refused += 1
            assert is_the_same(model, before)
    assert refused > 75
