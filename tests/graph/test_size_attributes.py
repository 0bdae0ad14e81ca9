"""Numbers of channels in attributes of modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rbprune
from rbprune.errors import ModelError
from rbprune.graph.size_attributes import set_size, size_names, size_of


def holder() -> nn.Module:
    class Holder(nn.Module):
        pass

    net = Holder()
    net.width, net.splits, net.flag, net.rate, net._own, net.empty = 8, [3, 5], True, 0.5, 4, []
    net.conv = nn.Conv2d(3, 8, 1)
    return net


def test_only_whole_numbers_and_lists_of_them_are_sizes() -> None:
    assert size_names(holder()) == ["width", "splits"]
    assert size_names(nn.Conv2d(3, 8, 1)) == []


@pytest.mark.parametrize("key", ["flag", "rate", "splits[2]", "splits[-1]", "splits", "width[0]", "nothing", "a b"])
def test_what_is_no_size_is_none(key: str) -> None:
    assert size_of(holder(), key) is None


def test_a_list_is_not_changed_in_its_place() -> None:
    net = holder()
    before = net.splits
    set_size(net, "splits[0]", 2)
    assert (before, net.splits) == ([3, 5], [2, 5])


@pytest.mark.parametrize(("key", "size"), [("splits[5]", 1), ("nothing", 1), ("splits[0]", 4), ("flag", 1)])
def test_a_plan_that_sets_no_size_is_refused(key: str, size: int) -> None:
    net = holder()
    plan = rbprune.Plan({}, {"": {key: size}})
    with pytest.raises(ModelError, match="the plan"):
        rbprune.apply_plan(net, plan)
    assert (net.width, net.splits, net.flag) == (8, [3, 5], True)
    assert torch.is_tensor(net.conv.weight)
