"""Weight norm, old and new: cut and scaled exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rbprune import Plan, apply_plan, trace
from tests.graph.hostile import image
from tests.graph.operations import conv
from tests.networks import random_drop, relative_error, scramble


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
    apply_plan(fresh, Plan.from_json(plan.to_json()))
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
