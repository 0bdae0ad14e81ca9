"""A network and data that nothing was tuned on: the first tables of docs/evidence.md.

    python benchmarks/strangers.py sizes --data DIR [--sizes 1000 2000] [--seeds 3]
    python benchmarks/strangers.py ways --data DIR
    python benchmarks/strangers.py absurd --data DIR
    python benchmarks/strangers.py digits --data digits.csv.gz --out RUN

DIR holds MNIST; digits.csv.gz is the file of that name in scikit-learn, 1,797 images of 8 x 8 pixels. Each line that is
printed is a row of a table.
"""

from __future__ import annotations

import argparse
import copy
import io
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune.api import Result
from rbprune.data.mnist import read_mnist

NOISE, SHIFT = 0.9, 4
"""MNIST with noise of this standard deviation and shifts of so many pixels: hard enough that 1,000 images leave a
network at 40 % error."""


class SqueezeExcite(nn.Module):
    """Channels weighted by what all of them say."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, channels // 4), nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))[:, :, None, None]


class Block(nn.Module):
    """Residual, with a depthwise convolution between two of 1 x 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 2 * width
        self.wide, self.norm1 = nn.Conv2d(width, inner, 1), nn.BatchNorm2d(inner)
        self.depthwise, self.norm2 = nn.Conv2d(inner, inner, 3, padding=1, groups=inner), nn.BatchNorm2d(inner)
        self.excite, self.narrow = SqueezeExcite(inner), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm2(self.depthwise(F.relu(self.norm1(self.wide(x))))))
        return x + self.narrow(self.excite(inner))


class OwnNetwork(nn.Module):
    """A network that no test of ours knows."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.blocks, self.head = nn.Sequential(Block(32), Block(32)), nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.blocks(self.second(self.stem(x)))).mean((2, 3)))


def images(folder: Path, part: str, number: int, seed: int) -> tuple[Tensor, Tensor]:
    """So many images of MNIST, drawn, shifted and spoilt by noise."""
    pixels, labels = read_mnist(folder, part)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(pixels), generator=generator)[:number]
    x = (pixels[chosen].float().view(-1, 1, 28, 28) / 255 - 0.13) / 0.31
    x = x + NOISE * torch.randn(x.shape, generator=generator)
    shifts = torch.randint(-SHIFT, SHIFT + 1, (len(x), 2), generator=generator).tolist()
    rolled = [torch.roll(image, (down, right), (1, 2)) for image, (down, right) in zip(x, shifts, strict=True)]
    return torch.stack(rolled), labels[chosen].long()


def train(model: nn.Module, loader: Any, loss_fn: Callable[..., Tensor], epochs: int, lr: float = 3e-3) -> None:
    """The dense network, as its owner would train it: the rate falls to nothing when he has time."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
            schedule.step() if epochs > 1 else None


def quiet(*args: Any, **options: Any) -> Result:
    """``rbprune.prune`` without its lines and warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rbprune.prune(*args, console=Console(file=io.StringIO()), **options)


def sizes(args: argparse.Namespace) -> None:
    """The own network on little and much data, trained and hardly trained, with ten classes and with two."""
    print(
        "| images | classes | dense epochs of training | seed | dense % | pruned % | MACs | taken back | verdict | s |"
    )
    for seed in range(args.seed, args.seed + args.seeds):
        test_x, test_y = images(args.data, "t10k", 4000, 1000 + seed)
        for number in args.sizes:
            for epochs in (12, 1):
                for classes in (10, 2):
                    torch.manual_seed(seed)
                    x, y = images(args.data, "train", number, seed)
                    model = OwnNetwork(classes)
                    loader = DataLoader(TensorDataset(x, y % classes), 64, shuffle=True)
                    train(model, loader, F.cross_entropy, epochs)
                    test = DataLoader(TensorDataset(test_x, test_y % classes), 500)
                    began = time.perf_counter()
                    options = [args.option] if args.option else []
                    found = quiet(model, loader, example_inputs=x[:2], test_loader=test, options=options).summary
                    back = sum(cut["asked"] - cut["gone"] for cut in found["cuts"])
                    print(
                        f"| {number} | {classes} | {epochs} | {seed} | {found['error_before']:.1f} | "
                        f"{found['error_after']:.1f} | {found['macs_ratio']:.2f}x | {back} | "
                        f"{found['verdict']['level']} | {time.perf_counter() - began:.0f} |",
                        flush=True,
                    )


def make() -> nn.Module:
    """The network of a recipe."""
    return OwnNetwork(10)


def data(path: str | Path) -> tuple[TensorDataset, TensorDataset]:
    """The data of a recipe, as ``ways`` has written them."""
    found = load_file(Path(path) / "images.safetensors")
    return TensorDataset(found["x"], found["y"]), TensorDataset(found["test_x"], found["test_y"])


RECIPE = """
[model]
name = "{file}:make"
weights = "{folder}/trained.safetensors"

[data]
name = "{file}:data"
path = "{folder}"
"""
"""The smallest recipe of docs/recipes.md."""


def ways(args: argparse.Namespace) -> None:
    """The widths that the call, the smallest recipe and one's own loop come to, from the same weights."""
    print("| images | seed | way | channels left | MACs |")
    for number in args.sizes:
        for seed in range(args.seed, args.seed + args.seeds):
            torch.manual_seed(seed)
            x, y = images(args.data, "train", number, seed)
            test_x, test_y = images(args.data, "t10k", 1000, 1000 + seed)
            model, loader = OwnNetwork(10), DataLoader(TensorDataset(x, y), 128, shuffle=True)
            train(model, DataLoader(TensorDataset(x, y), 64, shuffle=True), F.cross_entropy, 12)
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                save_file({"x": x, "y": y, "test_x": test_x, "test_y": test_y}, folder / "images.safetensors")
                save_file(model.state_dict(), folder / "trained.safetensors")
                found = {"the call": by_call, "the smallest recipe": by_recipe, "one's own loop": by_loop}
                for way, prune in found.items():
                    torch.manual_seed(seed)
                    pruned = prune(copy.deepcopy(model), loader, folder)
                    graph, dense = rbprune.trace(pruned, x[:1]), rbprune.trace(model, x[:1])
                    widths = "-".join(str(site.channels) for site in graph.sites)
                    print(
                        f"| {number} | {seed} | {way} | {widths} | {dense.macs() / graph.macs():.2f}x |",
                        flush=True,
                    )


def by_call(model: nn.Module, loader: DataLoader[Any], folder: Path) -> nn.Module:
    """One call without options."""
    quiet(model, loader, example_inputs=next(iter(loader))[0][:2], options=["finetune.epochs=0"])
    return model


def by_recipe(model: nn.Module, loader: DataLoader[Any], folder: Path) -> nn.Module:
    """The command line."""
    recipe = folder / "own.toml"
    recipe.write_text(RECIPE.format(file=Path(__file__).resolve(), folder=folder))
    command = [sys.executable, "-m", "rbprune", "prune", str(recipe), "--out", str(folder / "run")]
    subprocess.run([*command, "--set", "finetune.epochs=0"], check=True, capture_output=True)
    return rbprune.load(folder / "run", OwnNetwork(10))


def by_loop(model: nn.Module, loader: DataLoader[Any], folder: Path) -> nn.Module:
    """The loop of docs/your-own.md."""
    x = next(iter(loader))[0][:2]
    model.train()
    pruner = rbprune.Pruner(model, x, dataset_size=len(loader.dataset), loss_fn=F.cross_entropy)  # type: ignore[arg-type]
    pruner.measure(batch for batch, _ in zip(loader, range(4), strict=False))
    for stage in pruner:
        optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3))
        for inputs, targets in stage.batches(loader):
            loss = F.cross_entropy(model(inputs), targets) + stage.kl()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stage.finish()
    return model


def absurd(args: argparse.Namespace) -> None:
    """The default price, and a thousand times as much."""
    x, y = images(args.data, "train", 6000, 0)
    test = DataLoader(TensorDataset(*images(args.data, "t10k", 4000, 1000)), 500)
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True)
    for price in (None, rbprune.Price(nats_per_example=2000)):
        torch.manual_seed(0)
        model = OwnNetwork(10)
        train(model, loader, F.cross_entropy, 12)
        found = quiet(model, loader, example_inputs=x[:2], test_loader=test, price=price).summary
        rises = [cut["loss"] - found["dense_loss"] for cut in found["cuts"]]
        print(
            f"| {price} | {found['error_before']:.1f} | {found['error_after']:.1f} | {found['macs_ratio']:.2f}x | ",
            end="",
        )
        print(f"{max(rises):+.3f} of {0.1 * found['explained']:.3f} allowed | {found['verdict']['text']} |", flush=True)


def digits(args: argparse.Namespace) -> None:
    """A run on another data set whose cuts cost something: short stages that the plain threshold ends."""
    table = torch.tensor(np.loadtxt(args.data, delimiter=","), dtype=torch.float32)
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(args.seed))]
    x = F.interpolate(table[:, :64].view(-1, 1, 8, 8) / 16 - 0.3, scale_factor=2)
    data = TensorDataset(x, table[:, 64].long())
    torch.manual_seed(args.seed)
    model, loader = OwnNetwork(10), DataLoader(data, 64, shuffle=True)
    train(model, loader, F.cross_entropy, 30)
    short = {"prune": {"epochs": 1, "confidence": 0.0, "rate_lr": 0.1}, "finetune": {"epochs": 0}}
    quiet(model, loader, example_inputs=x[:2], options=short, price=rbprune.Price(nats_per_example=6)).save(args.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sizes", "ways", "absurd", "digits"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 6000, 20000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--option", default="")
    parser.add_argument("--out", type=Path, default=Path("runs/digits"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"sizes": sizes, "ways": ways, "absurd": absurd, "digits": digits}[args.what](args)


if __name__ == "__main__":
    main()
