"""Why SBP leaves the convolutions of LeNet-5 wide here, and published 3-18-284-283: each possible reason by itself.

    python benchmarks/sbp_lenet.py --data DIR --out FILE.jsonl [--epochs 40] [--rows trained;scratch]
    python benchmarks/sbp_lenet.py --table FILE.jsonl

SBP's noise (one draw per batch) on the outputs of conv1, conv2 and fc1 while the whole network trains, as the method
`sbp` has it; then on the 800 single inputs of fc1 as well, as published; from a trained network or from scratch; with
the shifted images of the recipe or the images as they are. A row that stands in the file already is not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import models
from rbprune.bayes import truncated_lognormal as tln
from rbprune.data import Data, load
from rbprune.methods.sbp import TruncatedLogNormalNoise
from rbprune.utils.seeds import mix

BATCH, WARM_EPOCHS = 128, 6


@dataclass(frozen=True)
class Row:
    """One way to train; the first of ROWS is the method as it is here."""

    scratch: bool = False
    inputs: bool = False
    """Whether the inputs of fc1 have noise one by one."""
    plain: bool = False
    """Whether images are not shifted."""
    noise_lr: float = 1e-2


ROWS = {
    "trained": Row(),
    "scratch": Row(scratch=True),
    "trained, inputs": Row(inputs=True),
    "scratch, inputs": Row(scratch=True, inputs=True),
    "trained, plain images": Row(plain=True),
    "scratch, inputs, plain images": Row(scratch=True, inputs=True, plain=True),
    "scratch, inputs, plain images, published rate": Row(scratch=True, inputs=True, plain=True, noise_lr=1e-3),
}


class NoisyLeNet5(nn.Module):
    """LeNet-5 with a factor on every channel, and where asked for on every input of fc1."""

    def __init__(self, *, inputs: bool) -> None:
        super().__init__()
        self.net = models.build("lenet5")
        sizes = {"conv1": 20, "conv2": 50, "inputs": 800 if inputs else 0, "fc1": 500}
        self.noise = nn.ModuleDict({name: TruncatedLogNormalNoise(size) for name, size in sizes.items() if size})

    def factors(self) -> dict[str, Tensor]:
        """Drawn once per batch in training; afterwards the means of what stays, and 0 for what goes."""
        if self.training:
            return {name: noise.draw(1)[0] for name, noise in self.noise.items()}
        return {name: noise.mean() * stays(noise) for name, noise in self.noise.items()}

    def forward(self, x: Tensor) -> Tensor:
        net, factors = self.net, self.factors()
        x = F.max_pool2d(F.relu(net.conv1(x)), 2) * factors["conv1"].view(-1, 1, 1)
        x = F.max_pool2d(F.relu(net.conv2(x)), 2) * factors["conv2"].view(-1, 1, 1)
        x = x.flatten(1) * factors.get("inputs", torch.ones(()))
        scores: Tensor = net.fc2(F.relu(net.fc1(x)) * factors["fc1"])
        return scores

    def divergence(self) -> Tensor:
        """The sum over all factors, in nats."""
        return torch.stack([tln.kl(noise.mu, noise.log_sigma).sum() for noise in self.noise.values()]).sum()


def stays(noise: TruncatedLogNormalNoise) -> Tensor:
    """Where the signal-to-noise ratio is above 1."""
    return tln.snr(noise.mu.double(), noise.log_sigma.double()) > 1


def left(model: NoisyLeNet5) -> dict[str, int]:
    """How many factors stay; a channel of conv2 of which no input stays is gone as well."""
    found = {name: int(stays(noise).sum()) for name, noise in model.noise.items()}
    if "inputs" in model.noise:
        alive = stays(model.noise["inputs"]).view(50, 16).any(1) & stays(model.noise["conv2"])
        found["conv2"] = int(alive.sum())
    return found


def train(model: NoisyLeNet5, data: Data, row: Row, epochs: int, *, noisy: bool) -> None:
    """Adam for the weights and, where there is noise, for the factors; rates fall to 0 along a line."""
    size, steps = len(data.train), len(data.train) // BATCH
    groups = [{"params": list(model.net.parameters()), "lr": 1e-3}]
    groups += [{"params": list(model.noise.parameters()), "lr": row.noise_lr}] if noisy else []
    optimizer = torch.optim.Adam(groups, betas=(0.95, 0.999))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-3, epochs * steps)
    network = model.train() if noisy else model.net.train()
    for epoch in range(epochs):
        order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch))[: steps * BATCH]
        for x, y in data.train.batches(order, BATCH, seed=mix(int(noisy), epoch), augment=not row.plain):
            loss = F.cross_entropy(network(x), y)
            if noisy:
                loss = loss + model.divergence() / size
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            for parameter in model.noise.parameters():
                tln.clamp_(parameter)


def error(model: nn.Module, data: Data) -> float:
    """Per cent of the test images that are wrong."""
    model.eval()
    order = torch.arange(len(data.test))
    with torch.no_grad():
        batches = data.test.batches(order, 500, seed=0, augment=False)
        return 100 * sum(int((model(x).argmax(1) != y).sum()) for x, y in batches) / len(data.test)


def make(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Train one row and say what is left."""
    row, began = ROWS[name], time.process_time()
    data = load("mnist", options.data, val=5000)
    torch.manual_seed(options.seed)
    model = NoisyLeNet5(inputs=row.inputs)
    if not row.scratch:
        train(model, data, row, WARM_EPOCHS, noisy=False)
    dense = None if row.scratch else error(model.net, data)
    train(model, data, row, options.epochs, noisy=True)
    found = {"row": name, "epochs": options.epochs, "seed": options.seed, "dense_error": dense, "left": left(model)}
    return found | {"error": error(model, data), "cpu_minutes": round((time.process_time() - began) / 60, 1)}


def table(file: Path) -> None:
    """Print the rows as a table."""
    print("| row | epochs | conv1-conv2-inputs-fc1 left of 20-50-800-500 | test error % |\n|---|---|---|---|")
    for each in map(json.loads, file.read_text().splitlines()):
        counts = "-".join(str(each["left"].get(name, "none")) for name in ("conv1", "conv2", "inputs", "fc1"))
        print(f"| {each['row']} | {each['epochs']} | {counts} | {each['error']:.2f} |")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", help="names of ROWS, separated by semicolons")
    options = parser.parse_args()
    if options.table is not None:
        table(options.table)
        return
    torch.set_num_threads(1)
    known = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(each["row"], each["epochs"], each["seed"]) for each in known}
    for name in options.rows.split(";") if options.rows else ROWS:
        if (name, options.epochs, options.seed) not in done:
            with options.out.open("a") as file:
                print(json.dumps(make(name, options)), file=file, flush=True)


if __name__ == "__main__":
    main()
