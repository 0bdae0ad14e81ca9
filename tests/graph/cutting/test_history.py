"""What a network remembers of its cuts."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from rbprune import Plan, apply_plan, trace
from rbprune.graph.cost import COSTS, CountedCost
from rbprune.graph.cutting.history import CutHistory, note_cuts, read_cuts, tensor_shapes
from tests.networks import random_drop, tiny_cnn

EXAMPLE = torch.zeros(2, 1, 8, 8)


class Block(nn.Module):
    """A residual block, a grouped and a depthwise convolution: what widths depend on in more than one way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.c, self.d = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 12, 3, groups=2)
        self.norm, self.head = nn.BatchNorm2d(12), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        x = x + self.b(x).relu()
        return self.head(self.norm(self.d(self.c(x))).relu().mean((2, 3)))


@pytest.mark.parametrize("build", [tiny_cnn, Block])
@pytest.mark.parametrize("seed", range(3))
def test_three_cuts_by_three_graphs_lead_from_the_network_as_it_was_built(build: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    model, x = build(), torch.randn(4, 1, 8, 8)
    costs = [cost for cost in COSTS.values() if isinstance(cost, CountedCost)]
    built = {cost.name: cost.total(trace(model, EXAMPLE)) for cost in costs}
    names = list(model.state_dict())
    for number in range(3):
        graph = trace(model, EXAMPLE)
        assert (graph.earlier is None) == (number == 0)
        graph.remove(random_drop(graph, seed + number))
        history = graph.history()
        fresh = apply_plan(build(), history.plan)
        fresh.load_state_dict(model.state_dict())
        assert torch.equal(fresh.eval()(x), model.eval()(x))
        layers = history.original_layers(graph.layers())
        assert {cost.name: sum(map(cost.of_layer, layers)) for cost in costs} == built
    assert list(model.state_dict()) == names, "the note is no part of the state"


def test_copies_and_pickles_of_a_network_know_its_cuts() -> None:
    model = tiny_cnn()
    plan = trace(model, EXAMPLE).remove({"0": [1, 3]})
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = read_cuts(copied)
        assert found is not None and found.plan == plan
    assert b"rbprune.graph" not in pickle.dumps(model), "whoever loads it needs no rbprune"


def test_a_network_that_something_else_has_changed_forgets() -> None:
    model = tiny_cnn()
    trace(model, EXAMPLE).remove({"0": [1, 3]})
    model[0], model[1], model[4] = nn.Conv2d(1, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Conv2d(5, 12, 3, padding=1)
    with pytest.warns(UserWarning, match="something else has changed '0.weight' of this Sequential since rbprune cut"):
        graph = trace(model, EXAMPLE)
    graph.remove({"0": [0]})
    assert graph.history().plan == graph.plan()
    del model[0]
    with pytest.warns(UserWarning, match="something else has changed"):
        assert read_cuts(model) is None


def test_a_cut_that_was_taken_back_is_overwritten_by_the_next() -> None:
    """The note follows from the graph as it is, not from the note before it."""
    model = tiny_cnn()
    graph = trace(model, EXAMPLE)
    note_cuts(model, CutHistory(Plan({"0.weight": {"0": [5]}}), {}))
    graph.remove({"4": [0]})
    found = read_cuts(model)
    assert found is not None and found.plan == graph.plan()


def test_shapes_are_those_of_the_tensors_that_are_there() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False))
    assert tensor_shapes(model, ["0.weight", "0.bias"]) == {"0.weight": [4, 1, 3, 3]}
    assert read_cuts(model) is None
