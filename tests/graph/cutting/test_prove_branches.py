"""The proof would notice what is wrong, and leaves the network alone."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from rbprune.errors import ModelError
from rbprune.graph.branch import make_branch
from rbprune.graph.cutting.prove_branches import differs_without, prove_branches
from tests.graph.residual_networks import FORMS, residual_net

IMAGE = torch.zeros(4, 3, 8, 8)
"""The proof runs on numbers of its own: with zeros there would be nothing to see."""


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return residual_net(FORMS["relu after the sum"][0])


def test_the_first_exact_way_is_found_and_the_wrong_ones_are_told() -> None:
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    right = make_branch("1.0", "1.0.bn2", [{"1.0.conv1": []}, {"1.0": []}])
    wrong = make_branch("1.1", "1.1.bn1", [{"1.1": []}])
    failing = make_branch("1.2", "1.2.bn2", [{"1.2": [], "2": [], "3": []}])
    state = torch.get_rng_state()
    found = prove_branches(model, IMAGE, [right, wrong, failing])
    assert list(found) == ["1.1", "1.2"]
    assert "the outputs differ by" in found["1.1"], "zeros at bn1 are no zeros at the sum"
    assert "the network without it fails" in found["1.2"]
    assert right.choices == [{"1.0": []}]
    assert right.is_proved
    assert right.is_foldable
    assert not wrong.is_proved
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert differs_without(model, IMAGE, [right]) is None


def test_scales_of_zero_hide_nothing() -> None:
    model = net()
    for block in model[1]:
        nn.init.zeros_(block.bn2.weight)
        nn.init.zeros_(block.bn2.bias)
    wrong = make_branch("1.1", "1.1.bn1", [{"1.1": []}])
    assert list(prove_branches(model, IMAGE, [wrong])) == ["1.1"]


def test_a_factor_that_cannot_be_folded_is_noticed() -> None:
    model = net()
    branch = make_branch("1.0", "1.0.relu", [{"1.0": []}])
    model[1][0].relu = nn.PReLU()
    model[1][0].run = lambda block, x: x + block.relu(block.bn2(block.conv2(block.bn1(block.conv1(x)))))
    assert prove_branches(model, IMAGE, [branch]) == {}
    assert branch.is_proved
    assert not branch.is_foldable, "half of its slope is not half of what it gives"


def test_networks_that_cannot_be_tried_are_refused() -> None:
    model = net()
    model.lock = threading.Lock()
    with pytest.raises(ModelError, match="cannot be copied, so the removal of a branch cannot be tried"):
        prove_branches(model, IMAGE, [make_branch("1.0", "1.0.bn2", [{"1.0": []}])])
    model = net()
    nn.init.constant_(model[4].bias, torch.inf)
    found = prove_branches(model, IMAGE, [make_branch("1.0", "1.0.bn2", [{"1.0": []}])])
    assert "no finite numbers" in found["1.0"]


def test_a_branch_inside_of_another_is_tried_by_itself() -> None:
    """Together, the outer one would hide what is wrong with the inner one."""
    outer = make_branch("1.0", "1.0.bn2", [{"1.0": []}])
    inner = make_branch("inner", "1.0.bn1", [{"1.0.bn1": []}])
    assert list(prove_branches(net(), IMAGE, [outer, inner])) == ["inner"]
    assert outer.is_proved
