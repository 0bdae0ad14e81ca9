"""What is told of a layer's result is what torch computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune.graph.tracing.known_results import always_makes_anew, known_result, known_result_of_function

LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Conv2d(4, 6, 3), (2, 4, 9, 7)),
    (nn.Conv2d(4, 6, (3, 5), stride=(2, 3), padding=(1, 0), dilation=(2, 1)), (2, 4, 11, 12)),
    (nn.Conv2d(4, 8, 3, groups=4, padding=1, padding_mode="reflect"), (2, 4, 9, 7)),
    (nn.Conv1d(4, 6, 3), (2, 4, 9)),
    (nn.Conv3d(4, 6, 2), (2, 4, 3, 4, 5)),
    (nn.Linear(5, 3), (2, 4, 5)),
    (nn.Linear(5, 3), (5,)),
    (nn.BatchNorm2d(4), (2, 4, 3, 3)),
    (nn.BatchNorm1d(4), (2, 4)),
    (nn.LayerNorm((4, 3)), (2, 4, 3)),
    (nn.AdaptiveAvgPool2d(1), (2, 4, 5, 5)),
    (nn.AdaptiveAvgPool2d((2, 3)), (2, 4, 5, 5)),
    (nn.Identity(), (2, 4)),
    (nn.Dropout(0.5), (2, 4)),
    (nn.Dropout2d(0.5, inplace=True), (2, 4, 3, 3)),
    (nn.Dropout(0.0), (2, 4)),
    (nn.ReLU(), (2, 4)),
    (nn.ReLU(inplace=True), (2, 4)),
    (nn.Hardswish(inplace=True), (2, 4)),
    (nn.GELU(), (2, 4)),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: str(value))
def test_shape_type_and_identity_are_those_of_torch(layer: nn.Module, shape: tuple[int, ...], training: bool) -> None:
    layer.train(training)
    known = known_result(layer)
    assert known is not None
    x, without_values = torch.randn(shape), torch.empty(shape, device="meta")
    with torch.no_grad():
        expected = layer(x)
    found = known(without_values)
    assert found is not None
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert (found is without_values) == (expected is x)
    assert not (always_makes_anew(layer) and expected is x)


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Conv2d(4, 6, 3), torch.empty(2, 3, 9, 9, device="meta")),
        (nn.Conv2d(4, 6, 3), torch.empty(4, 9, 9, device="meta")),
        (nn.Conv2d(4, 6, 3), torch.empty(2, 4, 2, 9, device="meta")),
        (nn.Conv2d(4, 6, 3), torch.empty(2, 4, 9, 9, device="meta", dtype=torch.float64)),
        (nn.Conv2d(4, 6, 3), torch.empty(2, 9, 9, 4, device="meta").permute(0, 3, 1, 2)),
        (nn.Linear(5, 3), torch.empty(2, 4, device="meta")),
        (nn.BatchNorm2d(4), torch.empty(2, 3, 5, 5, device="meta")),
        (nn.LayerNorm(4), torch.empty(2, 3, device="meta")),
        (nn.ReLU(), torch.empty(2, 3, device="meta", dtype=torch.int64)),
        (nn.AdaptiveAvgPool2d(1), torch.empty(4, 5, 5, device="meta")),
    ],
)
def test_torch_is_asked_where_something_does_not_fit(layer: nn.Module, x: Tensor) -> None:
    known = known_result(layer)
    assert known is not None and known(x) is None


class Doubled(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x)] * 2, 1)


@pytest.mark.parametrize(
    "layer",
    [
        nn.ConvTranspose2d(4, 4, 2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d((None, 1)),
        nn.InstanceNorm2d(4),
        Doubled(4, 4, 1),
    ],
)
def test_nothing_is_said_of_other_layers(layer: nn.Module) -> None:
    assert known_result(layer) is None


def full(*shape: int) -> Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("add", (full(2, 3, 4), full(2, 3, 4))),
        ("mul", (full(2, 3, 1, 1), full(2, 3, 4, 4))),
        ("sub", (full(1, 1, 4), full(2, 3, 1))),
        ("add_", (full(2, 3, 4), full(1, 3, 1))),
        ("cat", ([full(2, 3, 4), full(2, 5, 4)], 1)),
        ("cat", ((full(2, 3), full(2, 4)), -1)),
    ],
)
def test_functions_return_what_torch_returns(name: str, args: tuple[Any, ...]) -> None:
    function = getattr(torch, name, None) or getattr(Tensor, name)
    expected = function(*args)
    first, second = args
    meta = ([t.to("meta") for t in first], second) if name == "cat" else (first.to("meta"), second.to("meta"))
    found = known_result_of_function(name, meta, {})
    assert found is not None and (found.shape, found.stride()) == (expected.shape, expected.stride())
    assert (found is meta[0]) == name.endswith("_")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("add", (full(2, 3).to("meta"), 1)),
        ("add", (full(2, 3).to("meta"), full(2, 3))),
        ("add", (full(3, 2).to("meta").t(), full(2, 3).to("meta"))),
        ("add_", (full(2, 1).to("meta"), full(2, 3).to("meta"))),
        ("mul", (full(3).to("meta"), full(2, 3).to("meta"))),
        ("mul", (full(2, 2).to("meta"), full(2, 3).to("meta"))),
        ("cat", ([full(2, 3).to("meta"), full(3, 3).to("meta")], 1)),
        ("cat", ([full(2, 3).to("meta"), full(0).to("meta")], 1)),
        ("cat", ([full(2, 3).to("meta")], 2)),
        ("div", (full(2, 3).to("meta"), full(2, 3).to("meta"))),
    ],
)
def test_torch_is_asked_for_anything_else(name: str, args: tuple[Any, ...]) -> None:
    assert known_result_of_function(name, args, {}) is None
