"""Arithmetic, activations, pooling and statistics: masked == removed, gradients included, or frozen with the reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import trace
from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv


def gate(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    s = net.fc2(F.relu(net.fc1(F.adaptive_avg_pool2d(y, 1))))
    return net.b(y * torch.sigmoid(s))


def select(net: Net, x: Tensor) -> Tensor:
    y = torch.stack([net.a(x), net.b(x)], 1)
    b, c, h, w = (s := net.s(y.sum(1).mean((2, 3), keepdim=True))).shape
    return net.c((y * s.view(b, 2, c // 2, h, w).softmax(1)).sum(1))


def block(net: Net, x: Tensor) -> Tensor:
    y = F.relu(net.a(x))
    return net.d(F.relu(net.c(F.relu(net.b(y))) + y))


NETS: dict[str, Case] = {
    "prelu as a function": (
        lambda: Net(
            lambda n, x: n.b(F.prelu(F.prelu(n.a(x), n.slopes), n.slope)),
            **{"a": conv(3, 6), "b": conv(6, 2)},
            slopes=nn.Parameter(torch.rand(6)),
            slope=nn.Parameter(torch.rand(1)),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "converted": (
        lambda: Net(lambda n, x: n.b(torch.as_tensor(n.a(x).type_as(x)).to(x)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "turned and sampled": (
        lambda: Net(
            lambda n, x: n.b(
                F.grid_sample(torch.rot90(n.a(x), 1, (2, 3)), n.g(x).permute(0, 2, 3, 1).tanh(), align_corners=False)
            ),
            **{"a": conv(3, 6), "b": conv(6, 2), "g": conv(3, 2)},
        ),
        (3, 5, 6),
        {"a": 6},
    ),
    "prelu": (lambda: nn.Sequential(conv(3, 6), nn.PReLU(6), conv(6, 2)), (3, 6, 6), {"0": 6}),
    "squeeze and excitation": (
        lambda: Net(gate, a=conv(3, 6), fc1=conv(6, 3, 1), fc2=conv(3, 6, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6, "fc1": 3},
    ),
    "residual": (
        lambda: Net(block, a=conv(3, 6), b=conv(6, 5), c=conv(5, 6), d=conv(6, 2)),
        (3, 5, 5),
        {"a": 6, "b": 5},
    ),
    "mean over space": (
        lambda: Net(lambda n, x: n.b(n.a(x).mean([2, 3])), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "sum over space": (
        lambda: Net(lambda n, x: n.b(n.a(x).flatten(2).sum(-1)), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "interpolate": (
        lambda: Net(lambda n, x: n.b(F.interpolate(n.a(x), scale_factor=2.0)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "constants": (
        lambda: Net(lambda n, x: n.b((n.a(x) * 2 - 1) / 3 + 1), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "difference": (
        lambda: Net(lambda n, x: n.c(n.a(x) - n.b(x)), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "softmax over space": (
        lambda: Net(lambda n, x: n.b(n.a(x).flatten(2).softmax(-1).mean(2)), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "spatial attention": (
        lambda: Net(lambda n, x: n.b(n.a(x) * torch.sigmoid(n.m(x))), a=conv(3, 6), m=conv(3, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "selective kernel": (
        lambda: Net(select, a=conv(3, 6), b=conv(3, 6), s=conv(6, 12, 1), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "maximum": (
        lambda: Net(lambda n, x: n.c(torch.maximum(n.a(x), n.b(x))), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "outer product": (
        lambda: Net(
            lambda n, x: n.c((n.a(x).mean((2, 3)).unsqueeze(1) * n.b(x).mean((2, 3)).unsqueeze(2)).flatten(1)),
            a=conv(3, 4),
            b=conv(3, 6),
            c=nn.Linear(24, 2),
        ),
        (3, 5, 5),
        {"b": 6},
    ),
    "window over positions": (
        lambda: Net(
            lambda n, x: n.b(n.a(x) * n.w),
            a=nn.Conv1d(3, 6, 3),
            w=nn.Parameter(torch.randn(5)),
            b=nn.Conv1d(6, 2, 3),
        ),
        (3, 7),
        {"a": 6},
    ),
    "scale of rows": (
        lambda: Net(
            lambda n, x: n.b(n.w * n.a(x)), a=conv(3, 6), w=nn.Parameter(torch.randn(1, 1, 5, 1)), b=conv(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "generalised mean": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).clamp(min=1e-3).pow(n.p).mean((2, 3)).pow(1 / n.p)),
            a=conv(3, 6),
            p=nn.Parameter(torch.tensor([3.0])),
            b=nn.Linear(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "maximum of two": (
        lambda: Net(lambda n, x: n.c(torch.max(n.a(x), n.b(x))), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "largest in space": (
        lambda: Net(
            lambda n, x: n.b((y := n.a(x).flatten(2)).max(2)[0] + y.min(dim=2).values), a=conv(3, 6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "statistics": (
        lambda: Net(
            lambda n, x: n.b(torch.cat([(y := n.a(x)).std((2, 3)), y.var((2, 3)), y.norm(dim=(2, 3))], 1)),
            a=conv(3, 6),
            b=nn.Linear(18, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "mirrored": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) + y.flip(-1) + torch.flip(y, dims=[2])), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "made like another": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) + torch.ones_like(y)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "a choice by where": (
        lambda: Net(
            lambda n, x: n.c(torch.where((y := n.a(x)) > 0, y, n.b(x).masked_fill(y > 1, 0.5))),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "between two by a gate": (
        lambda: Net(
            lambda n, x: n.c(torch.lerp(n.a(x), n.b(x), n.g(x).sigmoid()).addcmul(n.a(x), n.b(x), value=0.1)),
            a=conv(3, 6),
            b=conv(3, 6),
            g=conv(3, 1),
            c=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "shifted in space": (
        lambda: Net(
            lambda n, x: n.b((y := n.a(x)).roll(1, 2) + torch.roll(y, shifts=(1, 2), dims=(2, 3))),
            a=conv(3, 6),
            b=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


REFUSED: dict[str, Refusal] = {
    "channels shifted": (
        lambda: Net(lambda n, x: n.b(n.a(x).roll(1, 1)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "roll moves channels",
    ),
    "softmax over channels": (
        lambda: nn.Sequential(conv(3, 6), nn.Softmax(1), conv(6, 2)),
        (3, 5, 5),
        "'1' (Softmax) runs over channels",
    ),
    "maximum over channels": (
        lambda: Net(lambda n, x: n.b(n.a(x).max(1, keepdim=True)[0]), a=conv(3, 6), b=conv(1, 2)),
        (3, 5, 5),
        "max runs over channels",
    ),
    "normalize over channels": (
        lambda: Net(lambda n, x: n.b(F.normalize(n.a(x), 2, 1)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "normalize runs over channels",
    ),
    "pooling over channels": (
        lambda: Net(
            lambda n, x: n.b(F.max_pool1d(n.a(x).mean((2, 3)).unsqueeze(1), 3, 1, 1)), a=conv(3, 6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        "max_pool1d does not find the channels in dimension 1",
    ),
    "pooling of channels and space without a batch": (
        lambda: Net(lambda n, x: n.b(F.max_pool2d(n.a(x).flatten(2), 3, 1, 1)), a=conv(3, 6), b=nn.Conv1d(6, 2, 1)),
        (3, 5, 5),
        "max_pool2d does not find the channels in dimension 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])


class Gate(nn.Module):
    """A product of two activations, which has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.d(self.c(self.a(x) * torch.cumsum(self.b(x), 1)))


def test_an_unknown_operation_freezes_only_what_it_touches() -> None:
    graph = trace(Gate(), torch.zeros(2, 4))
    assert [site.name for site in graph.sites] == ["c"]
    assert "cumsum runs over channels" in str(graph.frozen["b"])
    assert "mul with channels that cannot be removed" in str(graph.frozen["a"])
    assert str(graph.frozen["d"]) == "the network's output"
