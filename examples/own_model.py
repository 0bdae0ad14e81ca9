"""Prune a network of your own in one call, save it, and load it into a fresh instance of its class.

python examples/own_model.py [FOLDER]      (a few seconds)
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune


class MyNet(nn.Module):
    """Plain PyTorch: rbprune asks nothing of a model but that torch.fx can trace it."""

    def __init__(self, width: int = 32, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.hidden = nn.Linear(width * 16, 64)
        self.out = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 2)
        x = F.max_pool2d(x + self.conv2(F.relu(self.conv1(x))), 2)
        return self.out(F.relu(self.hidden(x.flatten(1))))


def bright_quadrants(count: int, seed: int) -> TensorDataset:
    """16x16 pictures of noise; the label says which quadrant is brighter."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 16, 16, generator=generator)
    y = torch.randint(4, (count,), generator=generator)
    for label in range(4):
        top, left = divmod(label, 2)
        x[y == label, :, 8 * top : 8 * top + 8, 8 * left : 8 * left + 8] += 0.5
    return TensorDataset(x, y)


def train(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], epochs: int) -> None:
    """Your own training; rbprune starts from a trained network."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main(folder: Path) -> None:
    torch.manual_seed(0)
    train_loader = DataLoader(bright_quadrants(1024, seed=1), batch_size=64, shuffle=True)
    val_loader = DataLoader(bright_quadrants(512, seed=2), batch_size=256)
    model = MyNet()
    train(model, train_loader, epochs=3)

    x = torch.randn(8, 1, 16, 16)
    result = rbprune.prune(  # changes the model in place
        model,
        train_loader,
        example_inputs=x,
        val_loader=val_loader,
        options=["prune.epochs=4", "prune.rate_lr=0.03", "finetune.epochs=2"],
    )
    summary = result.summary
    print(f"channels {summary['channels']}")
    print(f"MACs {summary['macs_ratio']:.1f}x, error {summary['error_before']:.1f} -> {summary['error_after']:.1f} %")

    result.save(folder)
    fresh = rbprune.load(folder, MyNet())
    model.eval()
    fresh.eval()
    with torch.no_grad():
        assert torch.equal(model(x), fresh(x))
    print(f"saved to {folder}; a fresh MyNet loaded from there gives the same outputs")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "run")
