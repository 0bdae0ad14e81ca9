"""Factors on what functions read: as on what a module reads, in training and evaluation, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rbprune import Price, Pruner, trace
from rbprune.errors import UnprunableError
from rbprune.methods.left_alone import sites_left_alone
from rbprune.methods.settings import PruningSettings
from tests.networks import learn_stripes, stripes, train_stage


class Holder(nn.Module):
    """A convolution that is written as a function."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.kernel, self.shift, self.groups = layer.weight, layer.bias, layer.groups

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(input=x, weight=self.kernel, bias=self.shift, groups=self.groups)


class Network(nn.Module):
    """Three convolutions and two linear layers, of which some are functions."""

    def __init__(self, *, functions: bool, recompute: bool = False, groups: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, b, c = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 6, 3, groups=groups), nn.Conv2d(6, 6, 3)
        d = nn.Linear(6, 5)
        self.e, self.recompute = nn.Linear(5, 3), recompute
        self.b, self.c, self.d = (Holder(b), Holder(c), nn.Linear(6, 5)) if functions else (b, c, d)
        if functions:
            self.d.load_state_dict(d.state_dict())
        self.functions = functions

    def forward(self, x: Tensor) -> Tensor:
        x = F.elu(self.a(x))
        x = F.elu(checkpoint(self.b, x, use_reentrant=False) if self.recompute else self.b(x))
        x = F.elu(self.c(x)).mean((2, 3))
        x = F.linear(x, self.d.weight, self.d.bias) if self.functions else self.d(x)
        return self.e(F.elu(x))


def seen(model: Network, method: str = "ibp") -> tuple[Any, list[Tensor]]:
    """A step of noise: the stage, and the loss with its slopes in the rates and in the first layer."""
    x, y = stripes(16)
    pruner = Pruner(model, x[:1], dataset_size=100, price=Price(nats=20), method=method, rates="adam")
    stage = pruner.stage(0)
    torch.manual_seed(3)
    loss = F.cross_entropy(model.train()(x), y)
    slopes = torch.autograd.grad(loss, [stage.factors.rate, model.a.weight])
    return stage, [loss.detach(), *slopes]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("recompute", [False, True], ids=["plain", "checkpointed"])
def test_a_function_gets_the_noise_that_a_module_would_get(recompute: bool, groups: int) -> None:
    ours, as_function = seen(Network(functions=True, recompute=recompute, groups=groups))
    theirs, as_module = seen(Network(functions=False, groups=groups))
    again, recomputed = seen(Network(functions=False, recompute=True, groups=groups))
    assert all(map(torch.equal, as_module, recomputed))
    again.abandon()
    assert (
        [s.channels for s in ours.sites]
        == [s.channels for s in theirs.sites]
        == ([8, 6, 6, 5] if groups == 1 else [4, 3, 6, 5])
    )
    for one, other in zip(as_function, as_module, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert bool((as_function[1] != 0).all()), "every channel is seen"
    x = stripes(16)[0]
    with torch.no_grad():
        torch.testing.assert_close(ours.graph.model.eval()(x), theirs.graph.model.eval()(x))
    ours.abandon(), theirs.abandon()
    with torch.no_grad():
        torch.testing.assert_close(ours.graph.model(x), Network(functions=False, groups=groups).eval()(x))


@pytest.mark.parametrize("method", ["rbp", "ibp", "sbp", "uniform", "taylor"])
def test_a_network_of_functions_ends_as_that_of_modules(method: str) -> None:
    x, y = stripes(256)
    widths, outputs = [], []
    for functions in (True, False):
        model = Network(functions=functions)
        learn_stripes(model, 100)
        torch.manual_seed(1)
        goal: dict[str, Any] = {"macs_ratio": 2.0} if method in ("uniform", "taylor") else {"price": Price(nats=12)}
        pruner = Pruner(model, x[:1], dataset_size=256, loss_fn=F.cross_entropy, method=method, **goal)
        for stage in pruner:
            train_stage(stage, x, y, 40)
        widths.append([site.channels for site in pruner.graph.sites])
        outputs.append(model.eval()(x).detach())
    assert widths[0] == widths[1] and (method == "sbp" or sum(widths[0]) < 25), "sbp takes longer"
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-3)


def test_an_error_in_the_forward_leaves_torch_as_it_was() -> None:
    stage, _ = seen(Network(functions=True))
    with pytest.raises(RuntimeError):
        stage.graph.model(torch.zeros(2, 3, 8, 8))
    assert torch.overrides._get_current_function_mode() is None
    x = stripes(4)[0]
    torch.manual_seed(0)
    first = stage.graph.model(x)
    torch.manual_seed(0)
    assert torch.equal(first, stage.graph.model(x))
    stage.abandon()
    assert torch.overrides._get_current_function_mode() is None


class Fickle(nn.Module):
    """Reads with its parameter only as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)
        self.kernel, self.other = nn.Parameter(torch.randn(4, 4, 1, 1)), True

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x).relu()
        kernel = self.kernel if self.other else self.kernel.clone()
        return self.b(F.conv2d(x, kernel).mean((2, 3)))


def test_a_function_that_is_not_met_again_is_an_error() -> None:
    """Its channels would look as if nobody needed them."""
    model, x = Fickle(), stripes(4)[0]
    stage = Pruner(model, x, dataset_size=10, method="ibp").stage(0)
    model.train()(x)
    model.other = False
    with pytest.raises(UnprunableError, match="no function read its input with 'kernel', as one did"):
        model(x)
    stage.abandon()


@pytest.mark.parametrize("method", ["bc", "rbc", "thinet", "cp", "tp-magnitude"])
def test_methods_that_need_modules_leave_what_functions_read_alone(method: str) -> None:
    graph = trace(Network(functions=True), torch.zeros(1, 1, 8, 8))
    alone = sites_left_alone(graph, PruningSettings(method=method))
    assert set(alone) == {"a", "b.kernel", "c.kernel"}
    assert f"{method} judges what modules read, and this is read by 'b.kernel'" in alone["a"]


class FixedKernel(nn.Module):
    """Reads with a buffer, as filters against aliasing do."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 6, 3), nn.Linear(4, 3)
        self.register_buffer("kernel", torch.randn(4, 6, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.conv2d(self.a(x).relu(), self.kernel).mean((2, 3)))


def test_a_buffer_that_functions_read_with_is_met_too() -> None:
    torch.manual_seed(0)
    model, (x, y) = FixedKernel(), stripes(64)
    pruner = Pruner(model, x[:1], dataset_size=64, loss_fn=F.cross_entropy, method="ibp", macs_ratio=1.5)
    for stage in pruner:
        train_stage(stage, x, y, 20)
    assert model.kernel.shape[1] == model.a.out_channels < 6
    assert model(x).shape == (64, 3)
