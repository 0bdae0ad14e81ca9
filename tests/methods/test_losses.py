"""The fixed point for any likelihood: the curvature of a stage is the exact one, and every kind of network is cut."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import rbprune
from rbprune import Price, Pruner
from rbprune.bayes.likelihood import Location, likelihood_of
from rbprune.errors import ConfigError, LoopError
from rbprune.methods.curvature import EVERY
from rbprune.methods.rbp import DiracStage

N = 16


def quadratic_nll(outputs: Tensor, targets: Tensor) -> Tensor:
    """A Gaussian of standard deviation 0.1, as somebody might write it."""
    return (outputs - targets).square().sum(1).mean() / (2 * 0.1**2)


class TwoHeads(nn.Module):
    """Classes and numbers from one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.classes, self.numbers = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.hidden(x).tanh()
        return {"classes": self.classes(y), "numbers": self.numbers(y)}


def both(outputs: dict[str, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(outputs["classes"], targets[0]) + quadratic_nll(outputs["numbers"], targets[1])


def plain(outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, outputs))


LABELS, NUMBERS = torch.arange(N) % 3, torch.linspace(-1, 1, 2 * N).view(N, 2)
CASES: dict[str, tuple[Callable[[], nn.Module], Any, Any]] = {
    "classes": (plain(3), F.cross_entropy, LABELS),
    "weighted classes": (plain(3), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.2])), LABELS),
    "smoothed": (plain(3), functools.partial(F.cross_entropy, label_smoothing=0.3), LABELS),
    "ignoring": (plain(3), functools.partial(F.cross_entropy, ignore_index=1), LABELS),
    "one score": (plain(1), F.binary_cross_entropy_with_logits, (LABELS > 0).float().unsqueeze(1)),
    "any loss": (plain(2), quadratic_nll, NUMBERS),
    "two heads": (TwoHeads, both, (LABELS, NUMBERS)),
    "errors": (plain(2), F.mse_loss, NUMBERS),
}


def exact_curvature(model: nn.Module, x: Tensor, targets: Any, loss_fn: Any) -> Tensor:
    """The diagonal of N d^2 loss / dtheta^2 by Gauss-Newton, from explicit Jacobians and the loss's exact Hessian."""
    likelihood = likelihood_of(loss_fn)
    nats: Callable[[Any], Tensor] = lambda z: loss_fn(z, targets)  # noqa: E731
    if isinstance(likelihood, Location):
        variance = F.mse_loss(model(x), targets).item()
        nats = lambda z: (z - targets).square().sum() / (2 * variance * N)  # noqa: E731
    layers = dict(model.named_modules())
    first = layers.get("hidden", layers.get("0"))
    assert first is not None
    hidden = first(x).tanh().detach()
    heads = [layers["classes"], layers["numbers"]] if isinstance(model, TwoHeads) else [layers["2"]]
    sizes = [head.out_features for head in heads]
    z = torch.cat([head(hidden) for head in heads], 1).detach()

    def structured(flat: Tensor) -> Any:
        parts = flat.view(N, -1).split(sizes, 1)
        return {"classes": parts[0], "numbers": parts[1]} if len(parts) == 2 else parts[0]

    hessian = torch.autograd.functional.hessian(lambda flat: nats(structured(flat)), z.flatten())
    weight = torch.cat([head.weight for head in heads]).detach()  # dz / dtheta_c = W[:, c] h_c
    jacobian = (weight.unsqueeze(0) * hidden.unsqueeze(1)).flatten(0, 1)
    width = sum(sizes)
    blocks = [slice(i * width, (i + 1) * width) for i in range(N)]
    return N * sum((jacobian[b] * (hessian[b, b] @ jacobian[b])).sum(0) for b in blocks)


@pytest.mark.parametrize("case", CASES)
def test_the_curvature_of_a_stage_is_the_exact_one(case: str) -> None:
    torch.manual_seed(0)
    make, loss_fn, targets = CASES[case]
    model, x = make(), torch.randn(N, 5)
    exact = exact_curvature(model, x, targets, loss_fn)
    pruner = Pruner(model, x[:2], dataset_size=N, loss_fn=loss_fn, price=Price(nats=20), rate_init=1e-4)
    stage = pruner.stage(0)
    assert isinstance(stage, DiracStage)
    model.train()
    draws = []
    for _ in range(3000):
        loss_fn(model(x), targets)
        stage.factors.curvature.running.zero_()
        stage.factors.curvature.updates = 0
        stage.factors.passes = 0 if not draws else EVERY
        stage.kl(targets)
        draws.append(stage.factors.curvature.running.clone())
    found, error = torch.stack(draws).mean(0), torch.stack(draws).std(0) / len(draws) ** 0.5
    assert bool(((found - exact).abs() < 5 * error + 0.02 * exact).all()), (found, exact)
    stage.abandon()


@pytest.mark.parametrize("case", [name for name in CASES if name != "classes"])
def test_a_loss_that_counts_by_targets_asks_for_them(case: str) -> None:
    make, loss_fn, targets = CASES[case]
    model, x = make(), torch.randn(N, 5)
    stage = Pruner(model, x[:2], dataset_size=N, loss_fn=loss_fn).stage(0)
    loss_fn(model(x), targets)
    with pytest.raises(LoopError, match=r"stage\.kl\(targets\)"):
        stage.kl()


def test_cross_entropy_of_one_output_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="with one class it is 0 whatever the network does"):
        Pruner(plain(1)(), torch.zeros(2, 5), dataset_size=N, loss_fn=F.cross_entropy)


def test_a_loss_without_curvature_falls_back_to_adam_with_a_line() -> None:
    model, x = plain(2)(), torch.randn(N, 5)

    def absolute(z: Tensor, y: Tensor) -> Tensor:
        return (z - y).abs().mean()

    batches = [(x, NUMBERS)] * 4
    short = {"prune": {"epochs": 1}, "finetune": {"epochs": 0}}
    result = rbprune.prune(
        model, batches, example_inputs=x[:2], loss_fn=absolute, options=short, dataset_size=N, console=quiet()
    )
    told = [e["message"] for e in result.events if e["event"] == "warning"]
    assert any("no second derivative" in message and "by Adam" in message for message in told)


def quiet() -> Console:
    return Console(file=io.StringIO())


class UNet(nn.Module):
    """Down, up, and a connection across."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.up, self.last = nn.Conv2d(24, 16, 3, padding=1), nn.Conv2d(32, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.first(x))
        b = F.interpolate(F.relu(self.up(F.relu(self.down(a)))), scale_factor=2.0)
        return self.last(torch.cat([a, b], 1))


def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return F.avg_pool2d(torch.randn(256, 1, 18, 18, generator=generator), 3, stride=1)


def task(name: str) -> tuple[nn.Module, Any, Tensor, Any]:
    torch.manual_seed(0)
    x = images()
    smooth = F.avg_pool2d(x, 3, stride=1, padding=1)
    if name == "image to image":
        return UNet(1), F.mse_loss, x, smooth
    if name == "segmentation":
        classes = (smooth[:, 0] > 0.1).long() + (smooth[:, 0] > -0.1).long()
        classes[:, :2] = 255
        return UNet(3), functools.partial(F.cross_entropy, ignore_index=255), x, classes
    if name == "regression":
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3456, 2)
        )
        return net, nn.SmoothL1Loss(), x, torch.stack([x.mean((1, 2, 3)), x[:, 0, :8].mean((1, 2))], 1)
    return UNet(1), F.binary_cross_entropy_with_logits, x, (smooth > 0).float()


@pytest.mark.parametrize("name", ["image to image", "segmentation", "regression", "mask"])
def test_half_of_the_macs_can_be_asked_for_whatever_the_loss(name: str) -> None:
    model, loss_fn, x, y = task(name)
    batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for inputs, targets in batches * 30:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        before = float(loss_fn(model(x), y))
    result = rbprune.prune(
        model,
        batches,
        example_inputs=x[:2],
        val_loader=batches,
        macs_ratio=2,
        loss_fn=loss_fn,
        options={"prune": {"epochs": 4}, "finetune": {"epochs": 20, "lr": 3e-3}},
        console=quiet(),
    )
    assert result.config.prune.rates == "fixed-point"
    assert 2 <= result.summary["macs_ratio"] < 2.3
    assert result.summary["error_after"] < 1.25 * before
