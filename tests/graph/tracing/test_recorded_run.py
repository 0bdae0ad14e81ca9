"""Two runs have equal keys exactly where they compute the same, from the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rbprune.graph.tracing.recorded_run import Keys, Origin, RecordedRun

Function = Callable[[Tensor, Tensor], Tensor]


def key_of(function: Function, keys: Keys, device: str = "cpu") -> int:
    run = RecordedRun(keys)
    x, weight = torch.randn(2, 4, device=device), torch.randn(4, device=device)
    run.name(x, "x", Origin.INPUTS)
    run.name(weight, "weight", Origin.WEIGHTS)
    with run:
        result = function(x, weight)
    return run.value_key(result)


def in_place(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    y += x
    return y


def through_an_alias(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    alias = y.view(4, 2)
    y += x
    return alias.view(2, 4)


def a_part_in_place(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    y[:1] += x[:1]
    return y


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.matmul(x.view(1, 2, 2, 2), w.view(1, 1, 2, 2).expand(1, 2, 2, 2)) * 0.5


SAME: dict[str, tuple[Function, Function]] = {
    "the same": (lambda x, w: x * w + x, lambda x, w: x * w + x),
    "in place": (lambda x, w: x * w + x, in_place),
    "through an alias": (lambda x, w: x * w + x, through_an_alias),
    "a constant, or what makes it": (lambda x, w: x + torch.ones(4), lambda x, w: x + torch.zeros(4).exp()),
    "another number": (lambda x, w: x * 0.25, lambda x, w: x * 0.75),
    "a product of four dimensions": (product, product),
    "what nobody uses": (lambda x, w: x * w, lambda x, w: (x + w).sum() * 0 if x is w else x * w),
}
OTHER: dict[str, tuple[Function, Function]] = {
    "another operation": (lambda x, w: x * w, lambda x, w: x + w),
    "another order": (lambda x, w: x - w, lambda x, w: w - x),
    "another source": (lambda x, w: x * w, lambda x, w: x * x[0]),
    "another view": (lambda x, w: x[:, :2], lambda x, w: x[:, 2:]),
    "another dimension, -1 or -2": (lambda x, w: x.softmax(-1), lambda x, w: x.softmax(-2)),
    "a part in place": (in_place, a_part_in_place),
    "a constant of another shape": (lambda x, w: x + torch.ones(4), lambda x, w: x + torch.ones(1)),
    "once more": (lambda x, w: x * w, lambda x, w: x * w * w),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", SAME)
def test_what_computes_the_same_has_the_same_key(name: str, device: str) -> None:
    keys = Keys()
    one, other = SAME[name]
    with torch.device(device):
        assert key_of(one, keys, device) == key_of(other, keys, device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", OTHER)
def test_what_computes_something_else_has_another_key(name: str, device: str) -> None:
    keys = Keys()
    one, other = OTHER[name]
    with torch.device(device):
        assert key_of(one, keys, device) != key_of(other, keys, device)


def test_on_the_meta_device_results_look_as_torch_makes_them() -> None:
    def forward(x: Tensor) -> list[Tensor]:
        y = torch.nn.functional.max_pool2d(x.transpose(2, 3), 2).to(memory_format=torch.channels_last)
        return [y, y.half(), y.relu_(), *y.max(1), y.t_() if y.dim() == 2 else y.squeeze_(0), y.argmax(0)]

    x = torch.randn(1, 4, 6, 8)
    keys = Keys()
    for _ in range(2):
        with RecordedRun(keys):
            found = forward(x.to("meta"))
        for a, b in zip(found, forward(x), strict=True):
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    assert keys.results


def test_operations_are_noted_with_the_line_and_what_they_depend_on() -> None:
    run = RecordedRun(Keys())
    x, weight = torch.randn(2, 4), torch.randn(4)
    run.name(x, "x", Origin.INPUTS)
    run.name(weight, "weight", Origin.WEIGHTS)
    with run:
        of_weight, of_both = weight.exp(), x * weight
    assert [(o.name, "test_recorded_run.py" in str(o.line)) for o in run.operations] == [("exp", True), ("mul", True)]
    assert [run.content(t).origin for t in (of_weight, of_both)] == [Origin.WEIGHTS, Origin.INPUTS]
    run.forget([of_both])
    assert run.content(of_both).origin is Origin.CONSTANT
