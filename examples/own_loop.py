"""Prune inside a training loop of your own: any optimizer, any schedule, any logging.

python examples/own_loop.py      (a few seconds)
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbprune


class Net(nn.Module):
    """Reads 8x8 pictures; two numbers come out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 24, 3)
        self.norm = nn.BatchNorm2d(24)
        self.hidden = nn.Linear(24 * 9, 48)
        self.out = nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.out(F.relu(self.hidden(x.flatten(1))))


def batches(images: Tensor, targets: Tensor, size: int = 64) -> list[tuple[Tensor, Tensor]]:
    """One epoch in a random order."""
    order = torch.randperm(len(images)).split(size)
    return [(images[index], targets[index]) for index in order]


def negative_log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    """Not only classification: here a Gaussian of standard deviation 0.1 around each output, mean per example."""
    return F.mse_loss(outputs, targets, reduction="none").sum(1).mean() / (2 * 0.1**2)


def main() -> None:
    torch.manual_seed(0)
    images = torch.randn(1024, 1, 8, 8)
    targets = torch.stack([images[:, 0, :4].mean((1, 2)), images[:, 0, 4:].mean((1, 2))], dim=1)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(10):  # a trained network to start from
        for x, y in batches(images, targets):
            loss = negative_log_likelihood(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    pruner = rbprune.Pruner(model, images[:2], dataset_size=len(images), loss_fn=negative_log_likelihood)
    pruner.measure(batches(images, targets)[:4])  # what the network explains: the scale of the price and of every cut
    dense = pruner.graph.macs()
    for stage in pruner:
        optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3))
        for x, y in stage.batches(batches(images, targets)):  # as long as it takes to know
            loss = negative_log_likelihood(model(x), y) + stage.kl(y)  # already divided by dataset_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = stage.finish()  # decide, forecast, fold, measure, remove, recalibrate
        print(f"{result.channels}  undecided {result.undecided}  measured {result.cut.measured:+.4f} nats per example")
    print(f"MACs {dense} -> {pruner.graph.macs()}; fine-tune as you like from here")

    with torch.no_grad():
        fresh = rbprune.apply_plan(Net(), pruner.plan)  # a fresh network with the same cuts
        fresh.load_state_dict(model.state_dict())
        assert torch.equal(fresh.eval()(images), model.eval()(images))


if __name__ == "__main__":
    main()
