"""What the tests of rules share: small networks, and the checks that each operation must pass."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

import rbprune
from rbprune import trace
from tests.networks import check_cut, random_drop, scramble

Case = tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, int]]
"""A network, the shape of its input without the batch, and the sites that it must have."""
Refusal = tuple[Callable[[], nn.Module], tuple[int, ...], str]
"""A network, the shape of its input without the batch, and words of the reason why its first layer stays."""


class Net(nn.Module):
    """Modules by name and a forward given as a function of (self, x)."""

    def __init__(self, forward: Callable[[Net, Tensor], Tensor], **modules: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.run = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def conv(i: int, o: int, k: int = 3, **options: int) -> nn.Conv2d:
    return nn.Conv2d(i, o, k, padding=k // 2, **options)


def check_operation(
    make: Callable[[], nn.Module], shape: tuple[int, ...], sites: dict[str, int], training: bool
) -> None:
    """Assert that masked and removed are the same function, gradients included, and that the plan repeats the cut."""
    torch.manual_seed(1)
    model = scramble(make()).train(training)
    x = torch.randn(3, *shape, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == sites
    drop = random_drop(graph)
    fresh = copy.deepcopy(model)
    plan = check_cut(graph, drop, x)
    replayed = rbprune.apply_plan(fresh.eval(), rbprune.Plan.from_json(plan.to_json()))
    assert {k: v.shape for k, v in replayed.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    widths = ("in_channels", "out_channels", "groups", "num_features", "in_features", "out_features", "num_groups")
    for (_, a), (_, b) in zip(model.named_modules(), replayed.named_modules(), strict=True):
        assert [getattr(a, w, None) for w in widths] == [getattr(b, w, None) for w in widths]


def check_refused(make: Callable[[], nn.Module], shape: tuple[int, ...], reason: str) -> None:
    """Assert that the first layer that stays does so for that reason."""
    graph = trace(make(), torch.zeros(2, *shape))
    first = next(iter(graph.frozen))
    assert first not in [site.name for site in graph.sites]
    assert reason in str(graph.frozen[first])
