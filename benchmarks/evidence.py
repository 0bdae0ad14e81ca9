"""Whether the evidence can be trusted on any task, and what it costs: tables of docs/evidence.md.

    python benchmarks/evidence.py tasks
    python benchmarks/evidence.py cost

Each line that is printed is a row of a table. Networks and data of strangers: ``benchmarks/strangers.py``. Forecasts
against what was measured are in the events of any run: ``python benchmarks/forecast.py RUN...``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from strangers import quiet, train
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune import models
from rbprune.methods.curvature import EVERY
from rbprune.methods.ending import STAGE_STEPS
from rbprune.train.budget import CHECK_PASSES


class SmallUNet(nn.Module):
    """Two levels, a skip by concatenation, as many outputs as asked for at every pixel."""

    def __init__(self, outputs: int) -> None:
        super().__init__()

        def double(inputs: int, width: int) -> nn.Sequential:
            parts = [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            return nn.Sequential(*parts, nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())

        self.first, self.second, self.last = double(1, 16), double(16, 32), double(48, 16)
        self.head = nn.Conv2d(16, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = F.interpolate(self.second(F.max_pool2d(a, 2)), scale_factor=2.0)
        return self.head(self.last(torch.cat([a, b], 1)))


class TwoHeads(nn.Module):
    """A class and a number from one trunk."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1)]
        self.trunk = nn.Sequential(*layers, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 64))
        self.kind, self.size = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = F.relu(self.trunk(x))
        return {"kind": self.kind(hidden), "size": self.size(hidden)}


def shapes(number: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noisy pictures of 16 x 16 with a disk, a square or a cross: the picture, the clean one, the kind, the size."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (number,), generator=generator)
    size = 2 + 3 * torch.rand(number, generator=generator)
    centre = 5 + 6 * torch.rand(number, 2, generator=generator)
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
    offset = (grid - centre[:, :, None, None]).abs()
    reach = size[:, None, None]
    disk, square = offset.square().sum(1).sqrt() < reach, offset.amax(1) < reach
    cross = (offset.amin(1) < 1) & (offset.amax(1) < reach)
    clean = torch.stack([disk, square, cross], 1)[torch.arange(number), kind].float().unsqueeze(1)
    return clean + 0.5 * torch.randn(clean.shape, generator=generator), clean, kind, size


def two_losses(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    """A class and a number, in nats for an error of 0.3."""
    wrong = F.cross_entropy(outputs["kind"], targets[:, 0].long())
    return wrong + (outputs["size"].squeeze(1) - targets[:, 1]).square().mean() / (2 * 0.3**2)


def tasks(seed: int = 0) -> None:
    """What is no classification, cut to half of its MACs."""

    def masks(number: int, seed: int) -> tuple[Tensor, Tensor]:
        x, clean, kind, _ = shapes(number, seed)
        y = (clean.squeeze(1) * (1 + kind[:, None, None])).long()
        unknown = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed)) < 0.1
        return x, torch.where(unknown, -100, y)

    regressor = nn.Sequential(TwoHeads().trunk, nn.ReLU(), nn.Linear(64, 1))
    cases: dict[str, tuple[nn.Module, Callable[..., Tensor], Callable[[int, int], Any]]] = {
        "U-Net, mse_loss": (SmallUNet(1), F.mse_loss, lambda n, s: shapes(n, s)[:2]),
        "segmentation, cross_entropy, ignore_index": (SmallUNet(4), F.cross_entropy, masks),
        "regressor, mse_loss": (regressor, F.mse_loss, lambda n, s: (shapes(n, s)[0], shapes(n, s)[3].unsqueeze(1))),
        "two heads, a loss of one's own": (
            TwoHeads(),
            two_losses,
            lambda n, s: (shapes(n, s)[0], torch.stack([shapes(n, s)[2].float(), shapes(n, s)[3]], 1)),
        ),
    }
    print("| task | MACs | loss on new data, dense | pruned | change | verdict | s |")
    for name, (model, loss_fn, draw) in cases.items():
        torch.manual_seed(seed)
        loader = DataLoader(TensorDataset(*draw(24_000, seed)), 64, shuffle=True)
        test = DataLoader(TensorDataset(*draw(2000, 100 + seed)), 500)
        train(model, loader, loss_fn, 8)
        example, began = next(iter(loader))[0][:2], time.perf_counter()
        found = quiet(model, loader, example_inputs=example, test_loader=test, loss_fn=loss_fn, macs_ratio=2).summary
        before, after = found["error_before"], found["error_after"]
        print(
            f"| {name} | {found['macs_ratio']:.2f}x | {before:.4f} | {after:.4f} | {after / before - 1:+.1%} | "
            f"{found['verdict']['level']} | {time.perf_counter() - began:.0f} |",
            flush=True,
        )


def cost() -> None:
    """What looks and checks take of the time of a stage of 200 noisy steps, on the dense network."""
    print("| network, method, stage | a look, in steps | the checks of a cut, in steps | share of the stage |")
    for name, method, number in (
        ("lenet5", "rbp", 0),
        ("lenet5", "rbp", 2),
        ("resnet20-cifar", "rrbp", 0),
        ("resnet20-cifar", "rbp", 0),
        ("resnet20-cifar", "rbp", 4),
        ("resnet20-cifar", "rbp", 8),
    ):
        look, checks = look_and_check(name, method, number)
        share = look / EVERY + checks / STAGE_STEPS
        print(f"| {name}, {method}, {number + 1} | {look:.2f} | {checks:.1f} | {share:.1%} |", flush=True)


def look_and_check(name: str, method: str, number: int) -> tuple[float, float]:
    """How many steps a look takes, and all checks of a cut."""
    torch.manual_seed(0)
    model = models.build(name)
    example = models.example_input(name, model)
    data = [(torch.randn(128, *example.shape[1:]), torch.randint(10, (128,))) for _ in range(4)]
    pruner = rbprune.Pruner(model, example, dataset_size=50_000, loss_fn=F.cross_entropy, method=method)
    pruner.measure(data)
    stage = pruner.stage(number)
    optimizer, times = torch.optim.SGD(stage.param_groups(lr=1e-3)), {True: [], False: []}
    model.train()
    for step in range(30):
        x, y = data[step % 4]
        looks, began = stage.factors.update_is_due(), time.perf_counter()
        loss = F.cross_entropy(model(x), y) + stage.kl(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times[looks].append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(CHECK_PASSES):
        stage.context.check.losses(model, batch_statistics=True)
    checks = time.perf_counter() - began
    stage.abandon()
    plain = median(times[False])
    return median(times[True]) / plain - 1, checks / plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tasks", "cost"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"tasks": tasks, "cost": cost}[args.what]()


if __name__ == "__main__":
    main()
