"""What is found, what is frozen and why, and that looking changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import models, trace
from rbprune.errors import ModelError, UnprunableError
from tests.graph.operations import Net, conv
from tests.networks import random_drop, relative_error, scramble, tiny_cnn


def test_sites_of_a_residual_network() -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    inside = [site for site in graph.sites if site.residual == "inside"]
    assert [site.name for site in inside] == [f"layer{i}.{j}.conv1" for i in (1, 2, 3) for j in range(3)]
    assert [site.name for site in inside if site.downsample] == ["layer2.0.conv1", "layer3.0.conv1"]
    assert all(site.block == site.name.removesuffix(".conv1") for site in inside)
    assert all(site.consumers == [site.name.replace("conv1", "conv2")] for site in inside)
    (through,) = [site for site in graph.sites if site.residual == "sum"]
    assert through.name == "conv1"
    assert {"layer1.0.conv2", "layer3.2.conv2"} <= set(through.producers)


def test_a_block_that_is_blended_with_its_shortcut_is_residual() -> None:
    net = Net(
        lambda n, x: n.d(torch.lerp(y := n.a(x), n.c(n.b(y)), 0.5)),
        a=conv(3, 6),
        b=nn.Conv2d(6, 5, 1),
        c=nn.Conv2d(5, 6, 1),
        d=conv(6, 2),
    )
    sites = trace(net, torch.zeros(1, 3, 8, 8)).sites
    assert [(site.name, site.residual) for site in sites] == [("a", "sum"), ("b", "inside")]


def test_every_first_block_of_resnet50_has_a_shortcut_of_its_own() -> None:
    graph = trace(models.build("torchvision:resnet50"), torch.zeros(1, 3, 64, 64))
    inside = [site for site in graph.sites if site.residual == "inside"]
    assert len(inside) == 32
    assert {site.block for site in inside if site.downsample} == {f"layer{i}.0" for i in (1, 2, 3, 4)}
    assert sum(site.channels for site in inside if site.block and site.block.startswith("layer1")) == 384


def test_linear_after_flatten_owns_a_range_of_columns_per_channel() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    (part,) = [part for part in graph["4"].parts if part.role == "in"]
    assert part.owner == "8"
    assert part.positions[2].tolist() == list(range(32, 48))


def test_looking_changes_nothing() -> None:
    model = tiny_cnn().train()
    model[1].eval()
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    state = torch.get_rng_state()
    trace(nn.Sequential(model, nn.Dropout()), torch.zeros(2, 1, 8, 8))
    assert torch.equal(state, torch.get_rng_state())
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


class Gate(nn.Module):
    """A product of two activations, which has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.d(self.c(self.a(x) * torch.cumsum(self.b(x), 1)))


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


def test_an_unknown_operation_freezes_only_what_it_touches() -> None:
    graph = trace(Gate(), torch.zeros(2, 4))
    assert [site.name for site in graph.sites] == ["c"]
    assert "cumsum runs over channels" in str(graph.frozen["b"])
    assert "mul with channels that cannot be removed" in str(graph.frozen["a"])
    assert str(graph.frozen["d"]) == "the network's output"


def test_a_shared_parameter_is_frozen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    graph = trace(model, torch.zeros(1, 4))
    assert graph.sites == []
    assert set(graph.frozen) == {"0", "2", "4"}


def test_keep_freezes_by_prefix_and_unknown_names_are_errors() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8), keep=("4",))
    assert "4" not in [site.name for site in graph.sites]
    assert "kept by keep" in str(graph.frozen["4"])
    with pytest.raises(ModelError, match="keep names 'nonsense'"):
        trace(tiny_cnn(), torch.zeros(1, 1, 8, 8), keep=("nonsense",))


def test_a_forward_that_fails_says_on_what() -> None:
    with pytest.raises(ModelError, match=r"fails on the example inputs \[\(2, 3, 8, 8\)\].*pass example_inputs"):
        trace(tiny_cnn(), torch.zeros(2, 3, 8, 8))


def test_control_flow_on_data_is_refused() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(UnprunableError, match=r"forward of Branch cannot be traced.*control flow"):
        trace(Branch(), torch.zeros(1, 3))


def test_bad_requests_change_nothing() -> None:
    model = tiny_cnn()
    graph = trace(model, torch.zeros(1, 1, 8, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UnprunableError, match="leaves nothing"):
        graph.remove({"4": [0], "0": range(6)})
    with pytest.raises(UnprunableError, match=r"channels 0\.\.5; asked to remove 6"):
        graph.remove({"4": [0], "0": [6]})
    with pytest.raises(UnprunableError, match="no site '44'.*did you mean '4'"):
        graph.remove({"44": [0]})
    with pytest.raises(UnprunableError, match="'10'; it is frozen: the network's output"):
        graph.remove({"10": [0]})
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Adafactor", "RMSprop", "NAdam"])
def test_optimizers_go_on_after_a_cut(kind: str) -> None:
    model, x = tiny_cnn(), torch.randn(4, 1, 8, 8)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    step()
    trace(model, x).remove({"0": [1], "4": [0, 2], "8": [3]}, optimizer=optimizer)
    weights = [p for p in model.parameters() if p.dim() > 1]
    before = [p.detach().clone() for p in weights]
    step()
    assert not any(torch.equal(old, new) for old, new in zip(before, weights, strict=True))


def test_an_optimizer_that_cannot_follow_is_refused() -> None:
    model, x = tiny_cnn(), torch.randn(4, 1, 8, 8)
    with pytest.raises(ModelError, match="LBFGS holds parameters where a cut cannot follow"):
        trace(model, x).remove({"0": [1]}, optimizer=torch.optim.LBFGS(model.parameters()))
    assert model[0].out_channels == 6


def test_optimizer_state_follows() -> None:
    model = tiny_cnn()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(4, 1, 8, 8)
    model(x).sum().backward()
    optimizer.step()
    moments = optimizer.state[model[4].weight]["exp_avg"].clone()
    graph = trace(model, x)
    graph.remove({"0": [1], "4": [0, 2]}, optimizer=optimizer)
    kept_out = [c for c in range(12) if c not in (0, 2)]
    kept_in = [c for c in range(6) if c != 1]
    assert torch.equal(optimizer.state[model[4].weight]["exp_avg"], moments[kept_out][:, kept_in])
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in model.parameters()}


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
