"""Weights that are normed, computed, shared, frozen or in half precision."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbprune
from rbprune import trace
from tests.networks import random_drop, relative_error, scramble

from .hostile import check_exact, image, same, snapshot
from .operations import Net, conv


def weight_normed(norm: Callable[..., nn.Module], dim: int | None) -> nn.Module:
    torch.manual_seed(5)
    return scramble(
        nn.Sequential(
            norm(conv(3, 6), dim=dim),
            nn.BatchNorm2d(6),
            nn.Tanh(),
            norm(nn.ConvTranspose2d(6, 5, 3, padding=1), dim=dim),
            nn.Tanh(),
            norm(conv(5, 8), dim=dim),
            norm(conv(8, 8, groups=8), dim=dim),
            norm(conv(8, 8, groups=2), dim=dim),
            nn.Flatten(),
            norm(nn.Linear(8 * 36, 7), dim=dim),
            nn.Tanh(),
            norm(nn.Linear(7, 2), dim=dim),
        )
    )


NORMS = {"hook": nn.utils.weight_norm, "parametrization": nn.utils.parametrizations.weight_norm}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("style", NORMS)
def test_weight_norm_is_cut_exactly(style: str, dim: int | None, training: bool) -> None:
    model, fresh = weight_normed(NORMS[style], dim).train(training), weight_normed(NORMS[style], dim).train(training)
    x = image().requires_grad_()
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == {"0": 6, "3": 5, "5": 4, "7": 4, "9": 7}
    drop = random_drop(graph)
    dense = model(x)
    with graph.mask(drop):
        masked = model(x)
    wanted = torch.autograd.grad(masked.square().sum(), x)[0]
    weights = {i: model[i].weight.detach().clone() for i in (0, 3, 5, 7, 9, 11)}
    plan = graph.remove(drop)
    removed = model(x)
    assert relative_error(masked, removed) < 1e-9
    assert relative_error(dense, masked) > 1e-3
    assert relative_error(wanted, torch.autograd.grad(removed.square().sum(), x)[0]) < 1e-9
    for i, weight in weights.items():
        for d, kept in plan.tensors[f"{i}.weight"].items():
            weight = weight.index_select(int(d), torch.tensor(kept))
        assert relative_error(weight, model[i].weight) < 1e-12
    rbprune.apply_plan(fresh, rbprune.Plan.from_json(plan.to_json()))
    assert relative_error(removed, fresh(x)) < 1e-12
    for value in fresh.state_dict().values():
        value.zero_()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(x), fresh.eval()(x))


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("style", NORMS)
def test_factors_are_folded_into_normed_weights(style: str, dim: int | None) -> None:
    model = weight_normed(NORMS[style], dim)
    x = image()
    graph = trace(model, x)
    model(x)
    for name, consumer, column in (("0", 3, 0), ("5", 7, 1), ("9", 11, 1)):
        factors = torch.rand(graph[name].channels).double()
        before = model[consumer].weight.detach().clone()
        graph.scale(graph[name], factors)
        wanted = before * factors.view([-1 if d == column else 1 for d in range(before.dim())])
        assert relative_error(wanted, model[consumer].weight) < 1e-12


def test_the_optimizer_follows_normed_weights() -> None:
    model = nn.Sequential(NORMS["parametrization"](nn.Linear(4, 6)), nn.Tanh(), NORMS["hook"](nn.Linear(6, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(5, 4)
    model(x).square().sum().backward()
    optimizer.step()
    direction, magnitude = model[0].parametrizations.weight.original1, model[0].parametrizations.weight.original0
    moments = [optimizer.state[t]["exp_avg"].clone() for t in (direction, magnitude)]
    trace(model, x).remove({"0": [0, 3]}, optimizer=optimizer)
    kept = [1, 2, 4, 5]
    cut = model[0].parametrizations.weight
    assert torch.equal(optimizer.state[cut.original1]["exp_avg"], moments[0][kept])
    assert torch.equal(optimizer.state[cut.original0]["exp_avg"], moments[1][kept])
    assert model[2].weight_v.shape == optimizer.state[model[2].weight_v]["exp_avg"].shape == (2, 4)
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in model.parameters()}
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def test_a_normed_weight_that_becomes_zero_stays_a_number() -> None:
    model = nn.Sequential(nn.Linear(3, 2), NORMS["parametrization"](nn.Linear(2, 2)))
    with torch.no_grad():
        model[1].parametrizations.weight.original1[0, 1] = 0
    graph = trace(model, torch.zeros(1, 3))
    graph.remove({"0": [0]})
    assert model[1].weight[0].tolist() == [0]
    assert model(torch.randn(2, 3)).isfinite().all()


def pruned_before(layer: nn.Linear) -> nn.Module:
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", 0.3)


COMPUTED = {
    "SpectralNorm": [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm],
    "Orthogonal": [nn.utils.parametrizations.orthogonal],
    "L1Unstructured": [pruned_before],
}


@pytest.mark.parametrize(("name", "make"), [(name, make) for name, makes in COMPUTED.items() for make in makes])
def test_a_computed_weight_stays_and_its_maker_is_named(name: str, make: Callable[..., nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), make(nn.Linear(5, 6)), nn.Linear(6, 7), nn.Linear(7, 2)).train()
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 4))
    assert same(before, snapshot(model))
    assert [site.name for site in graph.sites] == ["2"]
    assert f"'1.weight' is computed by {name}; make it a plain parameter first" in str(graph.frozen["1"])


def test_a_parametrized_layer_with_a_forward_of_its_own_has_no_rule() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(super().forward(x), 1)[0]

    model = nn.Sequential(NORMS["parametrization"](Doubled(4, 5)), nn.Linear(5, 2))
    graph = trace(model, torch.zeros(2, 4))
    assert graph.sites == []


def test_a_forward_put_on_an_instance_is_followed() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), nn.ReLU(), conv(5, 2))
    model[1].forward = lambda x: F.conv2d(x.flip(1), model[1].weight, padding=1)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert "flip moves channels" in str(graph.frozen["0"])


SHARED = {
    "batch norm": (
        lambda: nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), conv(6, 6), nn.BatchNorm2d(6), conv(6, 2)),
        lambda m: setattr(m[3], "weight", m[1].weight),
        "'1.weight' is shared with '3.weight'; give each a parameter of its own",
    ),
    "convolutions fed by others": (
        lambda: nn.Sequential(conv(3, 6), conv(6, 6), nn.ReLU(), conv(6, 6), conv(6, 2)),
        lambda m: setattr(m[3], "weight", m[1].weight),
        "'1.weight' is shared with '3.weight'",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_tensors_stay(name: str) -> None:
    make, tie, reason = SHARED[name]
    model = make()
    tie(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert reason in str(graph.frozen["0"])
    assert graph.sites == []


def tied(n: Net, x: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(x, n.w)), n.w.t())


def raw_use_of_a_layer(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x)) + n.a.weight.sum()


def bias_elsewhere(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x)) + n.c(n.a.bias.unsqueeze(0))


@pytest.mark.parametrize("forward", [tied, raw_use_of_a_layer, bias_elsewhere], ids=lambda f: f.__name__)
def test_a_weight_that_is_used_elsewhere_stays(forward: Callable[..., Tensor]) -> None:
    w = nn.Parameter(torch.randn(6, 4))
    model = Net(forward, w=w, a=nn.Linear(4, 6), b=nn.Linear(6, 4), c=nn.Linear(6, 4)).double()
    graph = trace(model, image(2, 4))
    assert graph.sites == []


def test_a_layer_that_an_unknown_module_uses_too_stays() -> None:
    class Inner(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum() > 0 else -self.layer(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)
            self.inner = Inner(self.a)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)) + self.inner(x).sum()

    graph = trace(Outer(), torch.zeros(2, 4))
    assert graph.sites == []
    assert "'inner' (Inner) has no channel rule and cannot be followed" in str(graph.frozen["a"])


def test_an_input_without_a_batch_is_refused() -> None:
    model = nn.Sequential(conv(6, 6), nn.ReLU(), conv(6, 2))
    graph = trace(model, torch.zeros(6, 6, 6))
    assert graph.sites == []


@pytest.mark.parametrize("persistent", [True, False])
def test_buffers_per_channel_are_cut(persistent: bool) -> None:
    class Buffers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = conv(3, 6), conv(6, 2)
            self.register_buffer("scale", torch.rand(6), persistent=persistent)
            self.register_buffer("shift", torch.rand(1, 6, 1, 1), persistent=persistent)
            self.plain = torch.rand(6, 1, 1).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.b((self.a(x) * self.scale.view(1, -1, 1, 1) + self.shift) * self.plain)

    model = scramble(Buffers())
    graph = check_exact(model, image(), sites={"a": 6})
    assert model.scale.shape[0] == model.plain.shape[0] == graph["a"].channels
    assert ("scale" in model.state_dict()) is persistent


def test_frozen_layers_stay_frozen_when_cut() -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2))).requires_grad_(False)
    model[3].weight.requires_grad_(True)
    check_exact(model, image(), sites={"0": 6})
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["3.weight"]


def test_a_model_in_half_precision_is_cut() -> None:
    model = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2)).bfloat16().eval()
    x = torch.randn(2, 3, 5, 5).bfloat16()
    graph = trace(model, x)
    drop = {"0": [1, 4]}
    with graph.mask(drop):
        masked = model(x)
    graph.remove(drop)
    assert model[0].weight.dtype == torch.bfloat16
    assert relative_error(masked.float(), model(x).float()) < 1e-2
