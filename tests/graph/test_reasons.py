"""Every reason for which channels stay is given by some network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import register_rule, trace
from rbprune.graph.reasons import REMEDIES, Kind, Reason

from .operations import Net, conv

KERNEL = torch.ones(2, 6, 1, 1)


def nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def computed_size(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.b(y.view(y.size(0), y.size(1) + 0, 6, 6))


def by_halves(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.b((y.view(y.size(0), 2, y.size(1) // 2, 6, 6) * n.c(x).unsqueeze(2)).flatten(1, 2))


class Odd(nn.Module):
    """A layer of somebody's own whose rule does not understand how it is called."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1


def odd_rule(propagation: Any, node: Any, module: nn.Module, x: Tensor, missing: Tensor) -> Tensor:
    return missing


register_rule(Odd, odd_rule)


REASONS: dict[str, tuple[Callable[[Net, Tensor], Tensor], dict[str, nn.Module]]] = {
    "pixel_shuffle does not find the channels in dimension 1": (lambda n, x: F.pixel_shuffle(nhwc(n.a(x)), 1), {}),
    "pixel_unshuffle does not find the channels in dimension 1": (lambda n, x: F.pixel_unshuffle(nhwc(n.a(x)), 2), {}),
    "avg_pool2d does not find the channels in dimension 1": (lambda n, x: F.avg_pool2d(nhwc(n.a(x)), 2), {}),
    "'p' (PReLU) has parameters for something else than channels": (
        lambda n, x: n.p(nhwc(n.a(x))),
        {"p": nn.PReLU(6)},
    ),
    "'b' (ConvTranspose2d) is a grouped transposed convolution": (
        lambda n, x: n.b(n.a(x)),
        {"b": nn.ConvTranspose2d(6, 4, 3, groups=2)},
    ),
    "chunk makes unequal parts of 6 channels": (lambda n, x: n.a(x).chunk(4, 1)[0], {}),
    "mul spreads it over channels": (lambda n, x: n.b(n.c(x) * n.a(x).sum(1, keepdim=True)), {}),
    "mul mixes channels": (by_halves, {"c": conv(3, 2)}),
    "'bn' (BatchNorm2d) normalises channels that are not in dimension 1": (
        lambda n, x: n.bn(nhwc(n.a(x))),
        {"bn": nn.BatchNorm2d(6)},
    ),
    "clamp of several tensors has no channel rule": (lambda n, x: n.b(torch.clamp(n.a(x), n.c(x))), {}),
    "max runs over channels": (lambda n, x: n.a(x).max(1)[0], {}),
    "flip moves channels": (lambda n, x: n.b(n.a(x).flip(1)), {}),
    "max of activations has no channel rule": (lambda n, x: n.b(n.a(x)) + torch.max(n.a(x)), {}),
    "sum over all dimensions mixes channels": (lambda n, x: n.b(n.a(x)) + n.a(x).sum(), {}),
    "pad pads by amounts that are not constant": (lambda n, x: F.pad(nhwc(n.a(x)), (1, 1)), {}),
    "pad pads channels by constant": (lambda n, x: F.pad(n.a(x), (0, 0, 0, 0, -1, 0)), {}),
    "'b' (Conv2d) reads channels that are not in one dimension": (lambda n, x: n.b(nhwc(n.a(x))), {}),
    "softmax runs over channels": (lambda n, x: n.a(x).softmax(1), {}),
    "view uses the number of channels": (computed_size, {}),
    "conv2d with a computed weight has no channel rule": (lambda n, x: F.conv2d(n.a(x), n.b.weight * 2), {}),
    "conv2d has a weight that is no parameter of the model": (
        lambda n, x: F.conv2d(n.a(x), torch.ones(2, 6, 1, 1)),
        {},
    ),
    "conv2d of an input without a batch dimension has no rule": (
        lambda n, x: F.conv2d(n.a(x)[0], n.b.weight),
        {},
    ),
    "'b' (Conv2d) of an input without a batch dimension has no rule": (lambda n, x: n.b(n.a(x)[0]), {}),
    "'odd' (Odd) is called in a way without a rule": (lambda n, x: n.odd(n.a(x)), {"odd": Odd()}),
    "its channels are bound to each other by mean over channels": (
        lambda n, x: n.b(n.a(x) * n.c(n.a(x).mean(1, keepdim=True)).sigmoid()),
        {"c": conv(1, 1)},
    ),
    "its channels are bound to each other by sizes written into the model": (
        lambda n, x: n.b(torch.cat(n.norm(n.a(x)).chunk(3, 1), 1)),
        {"norm": nn.GroupNorm(2, 6)},
    ),
    "'a.bias' is used by 'a' and elsewhere": (
        lambda n, x: n.b(n.a(x)) + n.linear(n.a.bias.unsqueeze(0)).sum(),
        {"linear": nn.Linear(6, 2)},
    ),
    "'a.weight' is used by sum": (lambda n, x: n.b(n.a(x)) + n.a.weight.sum(), {}),
    "'a' is kept by keep=['a']": (lambda n, x: n.b(n.a(x)), {}),
    "the network's output": (lambda n, x: n.a(x), {}),
}


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_is_given(reason: str) -> None:
    forward, modules = REASONS[reason]
    model = Net(forward, **{"a": conv(3, 6), "b": conv(6, 2), "c": conv(3, 6), **modules})
    graph = trace(model, torch.zeros(2, 3, 6, 6), keep=["a"] if "keep=" in reason else [])
    assert not any(site.name.startswith("a") for site in graph.sites)
    assert reason in str(next(why for name, why in graph.frozen.items() if name.startswith("a")))


def test_a_remedy_follows_from_the_kind_not_from_words_in_the_text_or_the_path() -> None:
    reason = Reason(Kind.MIXES_CHANNELS, "'a rule' is shared with what writes into it", "/rules/net.py:3")
    assert reason.remedy is None
    assert str(reason) == "'a rule' is shared with what writes into it (/rules/net.py:3)"
    taught = Reason(Kind.NO_RULE, "op has no channel rule", "net.py:3")
    assert str(taught) == f"op has no channel rule (net.py:3); {REMEDIES[Kind.NO_RULE]}"
    assert REMEDIES[Kind.NO_RULE].startswith("teach it: ")


@pytest.mark.parametrize("name", ["rule", "forward hook", "writes into"])
def test_a_module_named_like_a_reason_gets_no_remedy_for_it(name: str) -> None:
    model = nn.Sequential()
    model.add_module("a", conv(3, 6))
    model.add_module(name, nn.GroupNorm(1, 6))
    model.add_module("b", conv(6, 2))
    reason = trace(model, torch.zeros(2, 3, 6, 6)).frozen["a"]
    assert reason.kind is Kind.MIXES_CHANNELS
    assert str(reason) == f"'{name}' (GroupNorm) normalises over channels: one less changes the others"


def test_a_reason_holds_kind_text_and_place() -> None:
    model = Net(lambda n, x: n.b(n.a(x)[:, :3]), a=conv(3, 6), b=conv(3, 2))
    graph = trace(model, torch.zeros(2, 3, 6, 6))
    assert graph.frozen["a"].kind is Kind.SELECTED_BY_POSITION
    assert graph.frozen["a"].text == "getitem selects channels by position"
    assert str(graph.frozen["a"].place).rpartition(":")[0] == __file__
    assert graph.frozen["b"] == Reason(Kind.OUTPUT, "the network's output")


def test_a_layer_of_one_channel_is_not_said_to_be_bound() -> None:
    graph = trace(nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Conv2d(1, 2, 3)), torch.zeros(1, 1, 8, 8))
    assert str(graph.frozen["0"]) == "it has one channel, and at least one must stay"
