"""The cut at the end of a stage, with what is given to the channels that stay."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner
from rbprune.errors import ConfigError
from rbprune.methods.rbp import DiracStage
from tests.networks import learn_stripes, pruner, relative_error, stripes, tiny_cnn


@pytest.mark.parametrize(
    ("method", "way", "message"),
    [
        (
            "thinet",
            "weights",
            "method 'thinet' changes the weights of what stays by itself.*set .*='none'",
        ),
        ("cp", "factors", "method 'cp' changes the weights of what stays by itself"),
        ("uniform", "factors", "'factors' needs the curvature.*method 'uniform' with.*set prune.compensate='weights'"),
        ("rbp", "factors", "'factors' needs the curvature.*method 'rbp' with rates='adam' does not"),
    ],
)
def test_what_a_method_does_not_have_is_refused_before_it_begins(method: str, way: str, message: str) -> None:
    ratio = {} if method == "rbp" else {"macs_ratio": 1.5}
    found = pruner(method, tiny_cnn(), compensate=way, rates="adam", **ratio)
    with pytest.raises(ConfigError, match=message):
        found.stage(0)


def test_factors_need_all_pairs_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbprune.methods.curvature.MOST_CROSS", 5)
    found = pruner("rbp", tiny_cnn(), compensate="factors", rates="fixed-point", loss_fn=F.cross_entropy)
    with pytest.raises(ConfigError, match=r"kept for at most 5, and this stage has 6; set it to 'weights'"):
        found.stage(0)
    assert not any(module._forward_pre_hooks for module in found.model.modules())


def test_where_the_loss_turns_out_to_have_no_curvature_factors_are_refused() -> None:
    found = pruner("rbp", tiny_cnn(), compensate="factors")
    assert found.settings.rates == "auto"
    stage, (images, labels) = found.stage(0), stripes(16)
    optimizer = torch.optim.SGD(stage.param_groups(1e-2))
    (F.mse_loss(found.model(images), F.one_hot(labels, 3).float()) + stage.kl()).backward()
    with pytest.raises(ConfigError, match=r"need it; set prune.compensate='none' and set rates='adam'"):
        optimizer.step()


def cut(model: nn.Module, way: str, *, most: float = math.inf, **options: Any) -> tuple[nn.Module, float]:
    """A network cut by ``uniform``, and by how much that was measured to raise its loss, ``most`` at most."""
    images, labels = stripes(256)
    dtype = next(model.parameters()).dtype
    batches = [(x.to(dtype), y) for x, y in zip(images.split(64), labels.split(64), strict=True)]
    found = Pruner(
        copy.deepcopy(model), batches[0][0][:1], dataset_size=256, loss_fn=F.cross_entropy, method="uniform",
        macs_ratio=6, least=0.05, compensate=way, **options,
    )  # fmt: skip
    loss = found.measure(batches).loss
    found._context = replace(found._context, limit=loss + most)  # under a ratio there is no limit but here
    stage = found.stage(0)
    masked: list[Tensor] = []
    plain = found.graph.remove

    def remove(drop: Any, **more: Any) -> Any:
        found.model.eval()
        with torch.no_grad(), found.graph.mask(drop):
            masked.append(found.model(batches[0][0]))
        return plain(drop, **more)

    found.graph.remove = remove  # type: ignore[method-assign, assignment]
    torch.manual_seed(0)  # which places of an image are looked at
    report = stage.finish(batches=(x for x, _ in batches)).cut
    with torch.no_grad():
        assert relative_error(masked[0], found.model(batches[0][0])) < (1e-9 if dtype == torch.float64 else 1e-4)
    assert report.measured is not None
    return found.model, report.measured


def test_any_ranking_may_be_compensated_by_weights_and_the_measured_rise_is_that_of_the_compensated_cut() -> None:
    torch.manual_seed(0)
    model = tiny_cnn(8)
    learn_stripes(model)
    model = model.double()
    _, plain = cut(model, "none")
    smaller, compensated = cut(model, "weights")
    assert smaller[4].weight.shape[1] < 8  # type: ignore[index, union-attr, operator]
    assert plain > 0.05
    assert compensated < 0.5 * plain


def test_a_compensated_cut_is_taken_back_like_any_other() -> None:
    torch.manual_seed(0)
    model = tiny_cnn(8)
    learn_stripes(model)
    smallest, whole = cut(model, "weights")
    smaller, measured = cut(model, "weights", most=whole / 2)
    assert measured <= whole / 2
    assert weights_of(smallest) < weights_of(smaller) < weights_of(model)


def weights_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class Quadratic(nn.Module):
    """A linear network: its squared error is a quadratic function of the factors on its hidden channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6, bias=False), nn.Linear(6, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


def test_in_a_quadratic_network_a_removal_costs_what_the_optimal_brain_surgeon_says() -> None:
    """The loss -log N(y; f(x), 1) has the Hessian H = E[J^T J] in theta; at its minimum, removing channel c with the
    others free to move costs 1/2 / (H^-1)_cc, and nothing but the factors of the others has to change for that."""
    torch.manual_seed(28)
    model, x = Quadratic().double(), torch.randn(200, 5, dtype=torch.float64)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(1).mean() / 2

    columns = (model.first(x).unsqueeze(1) * model.last.weight).detach()  # dy / dtheta: [200, 4, 6]
    hessian = torch.einsum("nkc,nkd->cd", columns, columns) / 200
    noise = torch.randn(200, 4, dtype=torch.float64)
    jacobian = columns.flatten(0, 1)
    fit = jacobian @ torch.linalg.lstsq(jacobian, noise.flatten()).solution
    y = (model(x) + noise - fit.view(200, 4)).detach()  # so that theta = 1 is the minimum
    model.float()
    x, y = x.float(), y.float()
    stays = torch.tensor([0, 1, 3, 4, 5])
    change = torch.linalg.solve(hessian[stays][:, stays], hessian[stays, 2])
    assert float(change.abs().max()) < 0.5, "far enough within the reach"
    found = Pruner(
        model, x[:1], dataset_size=200, loss_fn=loss_fn, price=Price(nats=20), rates="fixed-point",
        compensate="factors", confidence=0, threshold=1e-3, max_rise=100,
    )  # fmt: skip
    found.measure([(x, y)])
    stage = found.stage(0)
    assert isinstance(stage, DiracStage)
    with torch.no_grad():
        stage.factors.rate.fill_(1e-4)
        stage.factors.rate[2] = 2e-3
    curvature = stage.factors.curvature
    assert curvature.products is not None
    curvature.products.copy_(200 * hessian)
    curvature.running.copy_(200 * hessian.diagonal())
    curvature.updates = 1
    last = model.last.weight.detach().clone()
    report = stage.finish(batches=[]).cut
    assert report.gone == 1
    surgeon = float(1 / torch.linalg.inv(hessian)[2, 2] / 2)
    assert surgeon < 0.5 * float(hessian[2, 2] / 2), "alone it would cost more"
    assert report.measured == pytest.approx(surgeon, rel=0.01)
    assert report.forecast == pytest.approx(surgeon, rel=0.01)
    torch.testing.assert_close(model.last.weight.detach(), last[:, stays] * (1 + change).float(), rtol=5e-3, atol=1e-4)
