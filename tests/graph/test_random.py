"""Random networks of branches, sums, concatenations, shuffles, groups, gates and flattening: always exact."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rbprune import apply_plan, trace
from tests.networks import random_drop, relative_error, scramble

KINDS = [
    "conv",
    "norm",
    "act",
    "pool",
    "grouped",
    "depthwise",
    "shuffle",
    "gate",
    "residual",
    "concat",
    "chunk",
    "scale",
]


class Step(nn.Module):
    """One random operation on a tensor of ``width`` channels; ``out`` is the width afterwards."""

    def __init__(self, kind: str, width: int, draw: Any) -> None:
        super().__init__()
        self.kind, self.out = kind, width
        if kind == "conv":
            self.out = draw(st.sampled_from([4, 6, 8, 12]))
            self.a = nn.Conv2d(width, self.out, draw(st.sampled_from([1, 3])), padding=0, bias=draw(st.booleans()))
        elif kind == "norm":
            choice = draw(st.sampled_from(["batch", "instance", "group"]))
            groups = width // 2 if width % 2 == 0 else width
            norms = {"batch": nn.BatchNorm2d, "instance": nn.InstanceNorm2d}
            self.a = nn.GroupNorm(groups, width) if choice == "group" else norms[choice](width, affine=True)
        elif kind == "act":
            self.a = draw(st.sampled_from([nn.ReLU, nn.SiLU, nn.Tanh, nn.Identity]))()
        elif kind == "pool":
            self.a = draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))(3, 1, 1)
        elif kind == "grouped":
            self.a = nn.Conv2d(width, width, 3, padding=1, groups=2 if width % 2 == 0 else 1)
        elif kind == "depthwise":
            self.a = nn.Conv2d(width, width, 3, padding=1, groups=width)
        elif kind == "gate":
            self.a, self.b = nn.Conv2d(width, 4, 1), nn.Conv2d(4, width, 1)
        elif kind == "residual":
            inner = draw(st.sampled_from([3, 5]))
            self.a, self.b = nn.Conv2d(width, inner, 3, padding=1), nn.Conv2d(inner, width, 3, padding=1)
        elif kind == "concat":
            self.a = nn.Conv2d(width, 4, 1)
            self.out = width + 4
        elif kind == "scale":
            self.gamma = nn.Parameter(torch.randn(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "shuffle":
            if self.out % 2:
                return x
            n, c, h, w = x.shape
            return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        if self.kind == "gate":
            return x * torch.sigmoid(self.b(F.relu(self.a(x.mean((2, 3), keepdim=True)))))
        if self.kind == "residual":
            return F.relu(x + self.b(F.relu(self.a(x))))
        if self.kind == "concat":
            return torch.cat([x, self.a(x)], 1)
        if self.kind == "chunk":
            if self.out % 2:
                return x
            left, right = x.chunk(2, 1)
            return torch.cat([right, F.relu(left)], 1)
        if self.kind == "scale":
            return x * self.gamma
        return self.a(x)


@st.composite
def networks(draw: Any) -> nn.Module:
    """A stem, up to eight random steps, and one of three ends."""
    width = draw(st.sampled_from([4, 6, 8]))
    steps: list[nn.Module] = [nn.Conv2d(2, width, 3, padding=1)]
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8)):
        step = Step(kind, width, draw)
        steps.append(step)
        width = step.out
    size = 10 - 2 * sum(1 for s in steps[1:] if getattr(s, "kind", "") == "conv" and s.a.kernel_size == (3, 3))
    end = draw(st.sampled_from(["flatten", "pool", "conv"])) if size > 0 else "pool"
    if end == "flatten":
        steps += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 5), nn.ReLU(), nn.Linear(5, 3)]
    elif end == "pool":
        steps += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)]
    else:
        steps += [nn.Conv2d(width, 3, 1)]
    return nn.Sequential(*steps)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(model=networks(), seed=st.integers(0, 1000), training=st.booleans())
def test_any_network_is_cut_exactly(model: nn.Module, seed: int, training: bool) -> None:
    torch.manual_seed(seed)
    model = scramble(model).train(training)
    fresh = copy.deepcopy(model)
    x = torch.randn(3, 2, 20, 20, dtype=torch.float64)
    graph = trace(model, x)
    drop = random_drop(graph, seed)
    with torch.no_grad():
        with graph.mask(drop):
            masked = copy.deepcopy(model)(x)
        plan = graph.remove(drop)
        assert relative_error(masked, copy.deepcopy(model)(x)) < 1e-9
        assert relative_error(masked, apply_plan(fresh, plan)(x)) < 1e-9
