"""Networks and helpers that several tests use."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from rbprune import Pruner, trace
from rbprune.graph import ChannelGraph, Plan
from rbprune.graph.cost import MACS
from rbprune.methods import Price, PruningSettings, Stage, StageContext
from rbprune.methods.curvature import RunningCurvature, Slopes
from rbprune.methods.rbp import DiracStage
from rbprune.methods.settings import Target


def tiny_cnn(channels: int = 6) -> nn.Sequential:
    """Two convolutions, batch norm, flatten, two linear layers, for inputs of 1 x 8 x 8."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, 12),
        nn.ReLU(),
        nn.Linear(12, 3),
    )


def stripes(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of 1 x 8 x 8 in three classes that a small network learns at once: rows, columns, neither."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    images = 0.3 * torch.randn(count, 1, 8, 8, generator=generator)
    images[labels == 0, :, ::2, :] += 1
    images[labels == 1, :, :, ::2] += 1
    return images, labels


def scramble(model: nn.Module) -> nn.Module:
    """Random batch-norm statistics and affine parameters, as after training; evaluation mode, float64."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model.double().eval()


def scatter(model: nn.Module) -> None:
    """Parameters that begin as a constant (gains of residual branches, often zero) become random; statistics stay."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 0.0
    for parameter in model.parameters():
        if bool((parameter == parameter.flatten()[0]).all()):
            nn.init.normal_(parameter)


def random_drop(graph: ChannelGraph, seed: int = 0) -> dict[str, list[int]]:
    """For every site a random set of channels to remove, at least one and never all."""
    generator = torch.Generator().manual_seed(seed)
    drop = {}
    for site in graph.sites:
        if site.channels > 1:
            count = int(torch.randint(1, site.channels, (1,), generator=generator))
            drop[site.name] = torch.randperm(site.channels, generator=generator)[:count].tolist()
    return drop


def relative_error(a: Tensor, b: Tensor) -> float:
    """Largest difference over largest value."""
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / a.abs().max().clamp_min(1e-30))


def left_alone(model: nn.Module, graph: ChannelGraph) -> dict[str, str]:
    """Convolutions that belong to no site, each with its reason."""
    covered = {part.owner for site in graph.sites for part in site.parts}
    missing = [n for n, m in model.named_modules() if isinstance(m, _ConvNd) and n not in covered]
    return {name: str(graph.frozen[name]) for name in missing}


def check_cut(graph: ChannelGraph, drop: dict[str, list[int]], x: Tensor) -> Plan:
    """Cut, and assert that the outputs and all gradients are those of the masked network."""
    model = graph.model
    with graph.mask(drop):
        masked = model(x)
        masked.square().sum().backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    plan = graph.remove(drop)
    removed = model(x)
    removed.square().sum().backward()
    assert relative_error(masked, removed) < 1e-9
    for n, p in model.named_parameters():
        kept = gradients[n]
        for dim, positions in plan.tensors.get(n, {}).items():
            kept = kept.index_select(int(dim), torch.tensor(positions))
        assert p.grad is not None
        assert kept.shape == p.shape
        assert float((kept - p.grad).abs().max()) < 1e-8 * max(1.0, float(kept.abs().max())), n
    return plan


def stage_context(
    graph: ChannelGraph,
    dataset_size: int = 100,
    *,
    price: Price | None = None,
    macs: float | None = None,
    later: tuple[str, ...] = (),
    **settings: Any,
) -> StageContext:
    """What a ``Pruner`` would tell a stage: 20 nats a channel, rates by Adam, unless told otherwise."""
    prices = (price or Price(nats=20)).resolve(graph, dataset_size)
    target = None if macs is None else Target(MACS, macs)
    chosen = PruningSettings(**{"rates": "adam", **settings})
    return StageContext(dataset_size, prices, chosen, target, later)


def stage_of(model: nn.Module, names: list[str], example: Tensor, **options: Any) -> DiracStage:
    """A stage that infers the rates of these sites, told what ``stage_context`` says."""
    graph = trace(model, example)
    return DiracStage(graph, names, stage_context(graph, **options))


def pruner(method: str, model: nn.Module, **options: Any) -> Pruner:
    """A method for a network on images of 1 x 8 x 8, of which there are 64, at 20 nats a channel."""
    return Pruner(model, torch.zeros(1, 1, 8, 8), dataset_size=64, method=method, price=Price(nats=20), **options)


def train_stage(stage: Stage, images: Tensor, labels: Tensor, steps: int) -> None:
    """Steps of a loop of one's own, rates by their fixed point."""
    optimizer = torch.optim.Adam(stage.param_groups(lr=3e-3, rate_lr=0.1))
    for _ in range(steps):
        loss = F.cross_entropy(stage.graph.model(images), labels) + stage.kl()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def learn_stripes(model: nn.Module, steps: int = 60) -> None:
    """Train a network until it tells stripes apart, always in the same way."""
    images, labels = stripes(512)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for step in range(steps):
        rows = slice(64 * step % 512, 64 * step % 512 + 64)
        optimizer.zero_grad()
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def see_curvature(estimate: RunningCurvature, curvature: Tensor, error: float = 0.0) -> None:
    """One look at the curvature of each channel that finds these values, with this standard error."""
    examples = torch.stack([curvature + error, curvature - error])
    estimate.update(Slopes(examples, torch.ones_like(examples)), 1)


def run_stages(pruner: Pruner, model: nn.Module) -> None:
    """All stages of a pruner of ``tiny_cnn``, six steps each, on noise."""
    x, y = torch.randn(32, 1, 8, 8), torch.randint(3, (32,))
    for stage in pruner:
        optimizer = torch.optim.SGD(stage.param_groups(lr=1e-3))
        for _ in range(6):
            loss = F.cross_entropy(model(x), y) + stage.kl(y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stage.finish()
