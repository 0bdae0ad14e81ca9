"""A graph is compared with the forward that it was traced from; hostile_networks.py has many that differ."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from rbprune import trace
from rbprune.errors import ModelError, UnprunableError
from rbprune.graph.tracing.compare_with_forward import TracedForward
from rbprune.utils.inputs import arguments
from tests.graph.hostile import same, snapshot
from tests.graph.operations import Net, conv


def compare(model: nn.Module, traced: nn.Module, training: bool = False) -> None:
    """Compare a model with the graph of another one that has the same modules."""
    graph = fx.Tracer().trace(traced)
    TracedForward(model, graph, arguments(torch.zeros(1, 3, 6, 6)), training, {}, [], {}).compare()


def pair(forward_of_graph: str) -> tuple[nn.Module, nn.Module]:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = conv(3, 6), nn.BatchNorm2d(6), conv(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.a(x)).relu()
            return y + self.b(y)

    class Traced(Plain):
        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.a(x)).relu()
            return {
                "same": lambda: y + self.b(y),
                "twice": lambda: y + self.b(self.b(y)),
                "other layer": lambda: y + self.a(x),
                "other order": lambda: self.b(y) + y,
                "no hook": lambda: self.b(y),
            }[forward_of_graph]()

    return Plain(), Traced()


@pytest.mark.parametrize("training", [False, True])
def test_a_graph_of_the_same_forward_passes_and_the_model_stays_as_it_is(training: bool) -> None:
    model, traced = pair("same")
    before = snapshot(model)
    compare(model, traced, training)
    assert same(before, snapshot(model))


@pytest.mark.parametrize("other", ["twice", "other layer", "other order", "no hook"])
def test_a_graph_of_another_forward_is_refused_with_the_line(other: str) -> None:
    said = r"is not what its forward computes in evaluation: (add|convolution) \(.*test_compare_with_forward.py:\d+\)"
    with pytest.raises(UnprunableError, match=said):
        compare(*pair(other))


def test_a_forward_that_looks_at_values_runs_for_real() -> None:
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.detach().abs().sum()) >= 0 else -x

    model = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 5), Moody(), conv(5, 2)).train()
    before = snapshot(model)
    assert [site.name for site in trace(model, torch.zeros(2, 3, 6, 6)).sites] == ["0"]
    assert same(before, snapshot(model))


def test_one_value_of_each_channel_is_enough_also_in_training() -> None:
    model = nn.Sequential(conv(3, 6), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6, 2))
    assert [site.name for site in trace(model, torch.zeros(1, 3, 6, 6)).sites] == ["0"]


def test_a_forward_that_fails_only_with_its_hooks_is_the_models_fault() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 2))
    calls = []

    def fails_later(module: nn.Module, args: Tensor, output: Tensor) -> None:
        calls.append(output.shape)
        if len(calls) > 1:
            raise ValueError("not again")

    model[0].register_forward_hook(fails_later)
    with pytest.raises(ModelError, match="forward fails on the example inputs.*not again"):
        trace(model, torch.zeros(1, 3, 6, 6))


@pytest.mark.parametrize(("kind", "refused"), [(nn.Sequential, False), (nn.Conv2d, True)])
def test_hooks_on_all_modules_at_once_are_followed_or_refused(kind: type[nn.Module], refused: bool) -> None:
    model = nn.Sequential(nn.Sequential(conv(3, 6)), conv(6, 2))
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: output.flip(1) if type(module) is kind else None
    )
    try:
        if refused:
            with pytest.raises(UnprunableError, match="not what its forward computes"):
                trace(model, torch.zeros(1, 3, 6, 6))
        else:
            assert "flip moves channels" in str(trace(model, torch.zeros(1, 3, 6, 6)).frozen["0.0"])
    finally:
        handle.remove()


def test_state_of_a_forward_is_put_back_before_it_is_compared() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        net.calls = getattr(net, "calls", 0) + 1
        y = net.a(x)
        return net.b(y.flip(1) if net.calls % 2 == 0 else y)

    assert [s.name for s in trace(Net(forward, a=conv(3, 6), b=conv(6, 2)), torch.zeros(1, 3, 6, 6)).sites] == ["a"]
