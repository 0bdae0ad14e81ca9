"""Sizes in attributes follow a cut where they are sizes and nothing else; otherwise the channels stay."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbprune
from rbprune import trace
from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv
from tests.networks import check_cut, random_drop, scramble


def net(forward: Callable[[Any, Tensor], Tensor], **attributes: Any) -> nn.Module:
    """8 channels of ``a``, of which ``b`` reads 4, and ``c`` reads 8."""
    made = Net(forward, a=conv(3, 8), b=conv(4, 4), c=conv(8, 2))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def unequal(n: Any, x: Tensor) -> Tensor:
    left, right = n.a(x).split(n.splits, 1)
    return n.c(torch.cat([n.b(left), right], 1))


def named(n: Any, x: Tensor) -> Tensor:
    parts = torch.split(n.a(x), split_size_or_sections=n.splits, dim=1)
    return n.c(torch.cat([n.b(parts[0]), parts[1]], 1))


def one_by_one(n: Any, x: Tensor) -> Tensor:
    left, right = torch.split(n.a(x), [n.left, n.right], dim=1)
    return n.c(torch.cat([n.b(left), right], 1))


def equal(n: Any, x: Tensor) -> Tensor:
    left, right = torch.split(
        n.a(x),
        n.width,
        1,
    )
    return n.c(torch.cat([n.b(left), right], 1))


def grouped(n: Any, x: Tensor) -> Tensor:
    left, right = F.group_norm(n.a(x), n.groups).chunk(2, 1)
    return n.c(torch.cat([n.b(left), right], 1))


APART = {"a": 4, "a#2": 4, "b": 4}
NETS: dict[str, Case] = {
    "a list": (lambda: net(unequal, splits=[4, 4]), (3, 6, 6), APART),
    "a tuple by its name": (lambda: net(named, splits=(4, 4)), (3, 6, 6), APART),
    "an attribute for each": (lambda: net(one_by_one, left=4, right=4), (3, 6, 6), APART),
    "one number": (lambda: net(equal, width=4), (3, 6, 6), {"a": 4, "b": 4}),
    "a number of groups": (lambda: net(grouped, groups=4), (3, 6, 6), {"a": 2, "b": 4}),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


def used_otherwise(n: Any, x: Tensor) -> Tensor:
    left, right = n.a(x).split(n.splits, 1)
    return n.c(torch.cat([n.b(left), right], 1)) * sum(n.splits)


def kept_in_a_variable(n: Any, x: Tensor) -> Tensor:
    sizes = n.splits
    left, right = n.a(x).split(sizes, 1)
    return n.c(torch.cat([n.b(left), right], 1)) * sizes[0]


def computed(n: Any, x: Tensor) -> Tensor:
    left, right = n.a(x).split(n.width // 2, 1)
    return n.c(torch.cat([n.b(left), right], 1))


def two_on_a_line(n: Any, x: Tensor) -> Tensor:
    (left, _), (_, right) = n.a(x).split(n.splits, 1), n.a(x).split([4, 4], 1)
    return n.c(torch.cat([n.b(left), right], 1))


def mixed(n: Any, x: Tensor) -> Tensor:
    left, right = n.a(x).split([n.left, 4], 1)
    return n.c(torch.cat([n.b(left), right], 1))


def over_space_too(n: Any, x: Tensor) -> Tensor:
    left, right = n.a(x).split(n.splits, 1)
    y = n.c(torch.cat([n.b(left), right], 1))
    return torch.cat(y.split(n.splits, 2), 2)


def written_by_the_forward(n: Any, x: Tensor) -> Tensor:
    n.splits = [4, 4]
    left, right = n.a(x).split(n.splits, 1)
    return n.c(torch.cat([n.b(left), right], 1))


POSITION = "split selects channels by position"
REFUSED: dict[str, Refusal] = {
    "used otherwise": (lambda: net(used_otherwise, splits=[4, 4]), (3, 6, 6), POSITION),
    "kept in a variable": (lambda: net(kept_in_a_variable, splits=[4, 4]), (3, 6, 6), POSITION),
    "computed": (lambda: net(computed, width=8), (3, 6, 6), POSITION),
    "two on a line": (lambda: net(two_on_a_line, splits=[4, 4]), (3, 6, 6), POSITION),
    "beside a written one": (lambda: net(mixed, left=4), (3, 6, 6), POSITION),
    "over space too": (
        lambda: net(over_space_too, splits=[4, 4]),
        (3, 8, 8),
        "split uses splits[0] for what may not change",
    ),
    "written by the forward": (lambda: net(written_by_the_forward, splits=[4, 4]), (3, 6, 6), POSITION),
    "a single group": (lambda: net(grouped, groups=1), (3, 6, 6), "normalises over groups"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_else_is_made_of_a_number_keeps_the_channels(name: str) -> None:
    check_refused(*REFUSED[name])


class Block(nn.Module):
    """A part of the channels through a convolution."""

    def __init__(self, splits: list[int]) -> None:
        super().__init__()
        self.splits = splits
        self.conv = conv(splits[0], splits[0])

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.split(self.splits, 1)
        return torch.cat([self.conv(left), right], 1)


def test_a_list_that_modules_share_follows_in_each_of_them() -> None:
    torch.manual_seed(0)
    shared = [3, 5]
    model = scramble(nn.Sequential(conv(3, 8), Block(shared), nn.ReLU(), Block(shared), conv(8, 2)))
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    graph = trace(model, x)
    check_cut(graph, random_drop(graph), x)
    assert shared == [3, 5], "it is somebody else's"
    assert [model[i].splits[0] for i in (1, 3)] == [model[i].conv.in_channels for i in (1, 3)]


def test_a_module_with_two_names_has_one_number() -> None:
    torch.manual_seed(0)
    block = Block([3, 5])
    model = scramble(nn.Sequential(conv(3, 8), block, nn.ReLU(), block, conv(8, 2)))
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    graph = trace(model, x)
    check_cut(graph, random_drop(graph), x)
    assert sum(block.splits) == model[4].in_channels < 8


def test_a_number_that_is_also_used_where_nothing_is_followed_stays() -> None:
    class Opaque(nn.Module):
        def __init__(self, inner: Block) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) if x.sum() > 0 else self.inner(-x)

    block = Block([3, 5])
    model = nn.Sequential(conv(3, 8), block, conv(8, 8), Opaque(block), conv(8, 2))
    graph = trace(model, torch.zeros(2, 3, 6, 6))
    assert not [site for site in graph.sites if any(part.owner.startswith("1.splits") for part in site.parts)]


def test_two_cuts_and_a_plan_lead_to_the_same_numbers() -> None:
    torch.manual_seed(0)
    model = scramble(nn.Sequential(conv(3, 8), Block([3, 5]), conv(8, 2)))
    fresh, x = copy.deepcopy(model), torch.randn(2, 3, 6, 6, dtype=torch.float64)
    for _ in range(2):
        graph = trace(model, x)
        graph.remove({site.name: [0] for site in graph.sites})
    plan = rbprune.Plan.from_json(graph.history().plan.to_json())
    replayed = rbprune.apply_plan(fresh, plan)
    assert replayed[1].splits == model[1].splits == [1, 3]
    replayed.load_state_dict(model.state_dict())
    torch.testing.assert_close(replayed(x), model(x), rtol=0, atol=0)
