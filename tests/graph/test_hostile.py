"""Unusual inputs, outputs and control flow, and models that stay as they were after any error."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import models, trace
from rbprune.errors import ModelError, UnprunableError
from tests.networks import scramble

from .hostile import check_exact, image, same, snapshot
from .operations import Net, conv

Make = Callable[[], nn.Module]


class Several(nn.Module):
    """Several inputs, some of them no tensors; nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 6), conv(2, 6), conv(6, 2)

    def forward(self, x: Tensor, *more: Any, mode: str = "sum", mask: Tensor | None = None, **rest: Any) -> Any:
        y = self.a(x) + self.b(rest["other"] if rest else more[0])
        if mask is not None:
            y = y * mask
        if mode == "sum":
            return {"out": self.c(y), "more": (x, [self.c(y).sum(1)])}
        return torch.sort(y, 1)[0]


def test_several_inputs_and_nested_outputs() -> None:
    check_exact(scramble(Several()), image(), image(3, 2, 6, 6), sites={"a": 6})


def test_inputs_by_name_and_what_is_no_tensor() -> None:
    inputs = {"x": image(), "other": image(3, 2, 6, 6), "mode": "sum", "mask": image(3, 1, 6, 6)}
    check_exact(scramble(Several()), sites={"a": 6}, **inputs)
    graph = trace(Several().double(), {**inputs, "mode": "sorted"})
    assert "sort has no channel rule" in str(graph.frozen["a"])


def test_a_reused_module_under_two_names() -> None:
    model = Net(lambda n, x: n.c(n.b(F.relu(n.twin(n.a(x))))), a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))
    model.twin = model.b
    check_exact(scramble(model), image(), sites={"a": 6})


class Moody(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_submodule_with_control_flow_says_what_stopped_it() -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 5), Moody(), conv(5, 2)))
    graph = check_exact(model, image(), sites={"0": 6})
    reason = str(graph.frozen["2"])
    assert "'3' (Moody) has no channel rule and cannot be followed: symbolically traced variables" in reason
    assert "rbprune.register_rule(its class, rule)" in reason


def test_random_depth_by_the_models_own_dice() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = conv(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            if self.training and random.random() < 0.5:
                return x
            return x + self.f(x)

    model = scramble(nn.Sequential(conv(3, 6), Block(), Block(), Block(), conv(6, 2)))
    x = image()
    before = snapshot(model)
    trace(model, x)
    assert same(before, snapshot(model))
    check_exact(model, x, sites={"0": 6})


def by_torch_rand(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    mask = torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype) < 0.5
    keep = y.new_empty(y.size(0), 1, 1, 1).fill_(0.5)
    return n.c(y + n.b(y) * torch.rand(y.size(0), 1, 1, 1, dtype=torch.float64) * keep) + mask.sum()


def test_stochastic_depth_by_factories() -> None:
    check_exact(scramble(Net(by_torch_rand, a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))), image(), sites={"a": 6})


def test_stochastic_depth_of_torchvision() -> None:
    ops = models.import_torchvision().ops
    model = Net(
        lambda n, x: n.c(n.s(n.b(F.relu(n.a(x)))) + n.a(x)),
        a=conv(3, 6),
        b=conv(6, 6),
        c=conv(6, 2),
        s=ops.StochasticDepth(0.5, "row"),
    )
    check_exact(scramble(model), image(), sites={"a": 6})


class Diary(nn.Module):
    """Writes into itself whenever it runs."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.a, self.b, self.drop = conv(3, 6), conv(6, 2), nn.Dropout()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(6))
        self.last, self.seen, self.cache, self.count = None, [], {}, 0
        self.stop = stop

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        y = self.drop(self.a(x))
        self.last = y
        self.seen.append(y)
        self.cache["y"] = y
        self.extra = torch.rand(3) + random.random() + np.random.rand()
        if self.stop == "raise":
            raise KeyError("the user's own")
        if self.stop == "value" and y.sum() > 0:
            return y
        return self.b(y)


class Inside(nn.Module):
    """The same as a part of a network, where it is run, not followed."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.first, self.diary = conv(3, 3), Diary(stop)

    def forward(self, x: Tensor) -> Tensor:
        return self.diary(self.first(x))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (Diary, None),
        (Inside, None),
        (lambda: Diary("raise"), ModelError),
        (lambda: Diary("value"), UnprunableError),
        (lambda: Inside("raise"), ModelError),
        (lambda: Inside("value"), None),
    ],
    ids=["followed", "inside", "raises", "looks at values", "raises inside", "looks at values inside"],
)
def test_a_model_that_writes_into_itself_is_as_it_was(make: Make, error: type[Exception] | None) -> None:
    model = make().train()
    model.get_submodule("diary" if isinstance(model, Inside) else "").a.eval()
    before = snapshot(model)
    if error is None:
        trace(model, torch.zeros(2, 3, 5, 5))
    else:
        with pytest.raises(error):
            trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))


def test_the_error_of_an_outermost_forward_names_the_line() -> None:
    with pytest.raises(
        UnprunableError, match=r"forward of Moody cannot be traced \(.*test_hostile.py:\d+\): .*submodule"
    ):
        trace(Moody(), torch.zeros(1, 3))


def test_the_error_of_a_forward_that_fails_names_the_layer() -> None:
    with pytest.raises(ModelError, match=r"fails on the example inputs \[\(2, 4\)\] at '1': .*pass example_inputs"):
        trace(nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)), torch.zeros(2, 4))


def test_an_assertion_of_the_outermost_forward_is_told_as_the_models_own() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[2] == x.shape[3], f"{x.shape[2]} rows, {x.shape[3]} columns: no square"
            return self.b(self.a(x))

    told = r"fails on the example inputs \[\(1, 3, 8, 9\)\] \(.*test_hostile.py:\d+\): 8 rows, 9 columns"
    with pytest.raises(ModelError, match=told):
        trace(Square(), torch.zeros(1, 3, 8, 9))
    assert [site.name for site in trace(Square(), torch.zeros(1, 3, 8, 8)).sites] == ["a"]


def test_a_lazy_layer_must_have_run() -> None:
    with pytest.raises(ModelError, match="'0.weight' has no shape yet; run the model once"):
        trace(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), torch.zeros(2, 4))


def test_a_model_changed_since_the_trace_is_refused_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    first, second = trace(model, torch.zeros(1, 4)), trace(model, torch.zeros(1, 4))
    first.remove({"2": [0]})
    before = snapshot(model)
    with pytest.raises(
        ModelError, match="'2.weight' has 4 positions in dimension 0, this graph knows 5.*trace it again"
    ):
        second.remove({"0": [0], "2": [0]})
    assert same(before, snapshot(model))


def test_a_mask_that_is_refused_leaves_no_hook() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    graph = trace(model, torch.zeros(1, 4))
    with (
        pytest.raises(UnprunableError, match=r"channels 0\.\.4; asked to remove -1"),
        graph.mask({"0": [0], "2": [-1]}),
    ):
        pass
    assert not any(m._forward_pre_hooks for m in model.modules())
