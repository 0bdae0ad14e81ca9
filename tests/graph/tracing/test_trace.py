"""What is found and what is kept, for unusual inputs and outputs too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import trace
from rbprune.errors import ModelError
from tests.graph.hostile import check_exact, image
from tests.graph.operations import Net, conv
from tests.networks import random_drop, relative_error, scramble, tiny_cnn


class Cases:
    """Small networks, each with the sites it should have and a word of the reason for what is frozen."""

    class Literal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, 3), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(F.adaptive_avg_pool2d(self.a(x), 2).view(-1, 16))

    class Dynamic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, 3), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = F.adaptive_avg_pool2d(self.a(x), 2)
            return self.b(y.view(y.size(0), -1))

    class Slice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(2, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)[:, :2])

    class Concat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 5, 3), nn.Conv2d(9, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.cat([self.a(x), F.relu(self.b(x))], 1))

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(F.relu(self.b(self.a(x)))))

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(self.a(x)))

    class Softmax(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(self.a(x).softmax(1)))

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).mean((2, 3)) * 2 + 1)


@pytest.mark.parametrize(
    ("network", "sites", "reason"),
    [
        (Cases.Literal, {}, "view fixes the number of channels: (2, 16)"),
        (Cases.Dynamic, {"a": 4}, None),
        (Cases.Slice, {}, "getitem selects channels by position"),
        (Cases.Concat, {"a": 4, "b": 5}, None),
        (Cases.Twice, {"a": 4}, None),
        (Cases.Grouped, {"a": 2, "b": 2}, None),
        (Cases.Softmax, {"b": 4}, "softmax runs over channels"),
        (Cases.Mean, {"a": 4}, None),
    ],
)
def test_each_case_is_exact_or_frozen_by_name(
    network: type[nn.Module], sites: dict[str, int], reason: str | None
) -> None:
    model = scramble(network())
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == sites
    if reason is not None:
        assert reason in str(graph.frozen["a"])
    drop = random_drop(graph)
    with torch.no_grad():
        with graph.mask(drop):
            masked = model(x)
        graph.remove(drop)
        assert relative_error(masked, model(x)) < 1e-9


def test_keep_freezes_by_prefix_and_unknown_names_are_errors() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8), keep=("4",))
    assert "4" not in [site.name for site in graph.sites]
    assert "kept by keep" in str(graph.frozen["4"])
    with pytest.raises(ModelError, match="keep names 'nonsense'"):
        trace(tiny_cnn(), torch.zeros(1, 1, 8, 8), keep=("nonsense",))


@pytest.mark.parametrize("name", ["a", "norm", "deep", "act", "alias"])
def test_whatever_is_kept_keeps_its_channels(name: str) -> None:
    modules = {"a": conv(3, 8), "norm": nn.BatchNorm2d(8), "deep": conv(8, 8, groups=8), "act": nn.ReLU()}
    model = Net(lambda n, x: n.b(n.act(n.deep(n.norm(n.a(x))))), **modules, b=conv(8, 4))
    model.alias = model.a
    x = torch.zeros(2, 3, 5, 5)
    assert [site.name for site in trace(model, x).sites] == ["a"]
    graph = trace(model, x, keep=[name])
    assert not graph.sites
    assert "is kept by keep" in str(graph.frozen["a"])


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


def test_a_lazy_layer_must_have_run() -> None:
    with pytest.raises(ModelError, match="'0.weight' has no shape yet; run the model once"):
        trace(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), torch.zeros(2, 4))


def test_auxiliary_heads_are_cut_with_the_rest() -> None:
    class Aux(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.aux = conv(3, 6), conv(6, 2), conv(6, 4)

        def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
            y = self.a(x)
            return {"out": self.b(y), "aux": self.aux(y)} if self.training else self.b(y)

    model = Aux()
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert graph["a"].consumers == ["b", "aux"]
    graph.remove({"a": [0, 3]})
    assert set(model.train()(torch.zeros(2, 3, 5, 5))) == {"out", "aux"}
    assert model.eval()(torch.zeros(2, 3, 5, 5)).shape == (2, 2, 5, 5)
