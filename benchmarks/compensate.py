"""Whether it helps to give what a removed channel carried to those that stay: the figures of docs/compensate.md.

    python benchmarks/compensate.py --data DIR --weights FILE --out FILE.jsonl [--methods uniform rrbp] [--ratios 2 4]
        [--recovery 0 0.5 2] [--seeds 0 1]

ResNet-20 on CIFAR10, cut to a part of its MACs with prune.compensate none, factors (rrbp) and weights, then trained for
so many dense epochs (the smaller network trains longer for the same computation) with a rate that falls to 0. The
error is that on 5,000 training images which are held out here; the published weights have seen them, so it is lower
than on new images, and no more than a comparison between rows. What stands in the file already is not computed again.
The stage of rrbp is trained once for a ratio and a seed, and cut in all three ways.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Pruner, models
from rbprune.data.cifar10 import CIFAR10, read_cifar10
from rbprune.methods import Stage

HELD_OUT, BATCH, CHECKED, RECALIBRATION = 5000, 128, 4, 50
WAYS = {
    "uniform": ("none", "weights"),
    "rrbp": ("none", "factors", "weights"),
    "rrbp-plain": ("none", "factors", "weights"),
}
"""The rows of the table. ``rrbp-plain`` is rrbp with confidence = 0, whose rates are cut where they are, as in the
paper; rrbp itself brings them to 0 and 1 before it cuts."""


def normalised(pixels: Tensor) -> Tensor:
    """Pixels as the published network wants them."""
    shift, scale = (torch.tensor(values).view(3, 1, 1) for values in (CIFAR10.mean, CIFAR10.std))
    return (pixels.float() / 255 - shift) / scale


class Images:
    """The training images but for those held out, shifted and flipped anew for every batch."""

    def __init__(self, folder: Path) -> None:
        pixels, labels = read_cifar10(folder, "train")
        self.pixels, self.labels = pixels[HELD_OUT:], labels[HELD_OUT:]
        self.held_out = [
            (normalised(x), y) for x, y in zip(pixels[:HELD_OUT].split(500), labels[:HELD_OUT].split(500), strict=True)
        ]

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches without end, drawn by the seed."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            for chosen in torch.randperm(len(self.pixels), generator=generator).split(BATCH):
                if len(chosen) == BATCH:
                    yield self._shifted(normalised(self.pixels[chosen]), generator), self.labels[chosen]

    @staticmethod
    def _shifted(x: Tensor, generator: torch.Generator) -> Tensor:
        padded, found = F.pad(x, (4, 4, 4, 4)), torch.empty_like(x)
        down, right, flip = (torch.randint(n, (len(x),), generator=generator).tolist() for n in (9, 9, 2))
        for i in range(len(x)):
            image = padded[i, :, down[i] : down[i] + 32, right[i] : right[i] + 32]
            found[i] = image.flip(2) if flip[i] else image
        return found


def error(model: nn.Module, images: Images) -> float:
    """Percent of the held-out images that are taken for something else."""
    model.eval()
    with torch.no_grad():
        wrong = sum(int((model(x).argmax(1) != y).sum()) for x, y in images.held_out)
    return 100 * wrong / HELD_OUT


def train(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], steps: int, lr: float, stage: Any = None) -> None:
    """SGD with a rate that falls to 0; in a stage, one that stays."""
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=5e-4)
    model.train()
    source = islice(batches, steps) if stage is None else stage.batches(batches, steps)
    for number, (x, y) in enumerate(source):
        if stage is None:
            optimizer.param_groups[0]["lr"] = lr * (1 - number / steps)
        loss = F.cross_entropy(model(x), y)
        loss = loss if stage is None else loss + stage.kl()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def begin(args: argparse.Namespace, images: Images, method: str, ratio: float, way: str, seed: int) -> Stage:
    """The only stage of a method on the published network, measured and ready."""
    model = models.build("resnet20-cifar", weights=args.weights)
    changes: dict[str, Any] = {"downsampling": True, "rates": "fixed-point"} if method != "uniform" else {}
    changes |= {"confidence": 0.0} if method == "rrbp-plain" else {}
    pruner = Pruner(
        model,
        torch.zeros(1, 3, 32, 32),
        dataset_size=len(images.labels),
        loss_fn=F.cross_entropy,
        method=method.removesuffix("-plain"),
        macs_ratio=ratio,
        compensate=way,
        **changes,
    )
    pruner.measure(list(islice(images.batches(1000 + seed), CHECKED)))
    torch.manual_seed(seed)
    return pruner.stage(0, remember=False)


def networks(
    args: argparse.Namespace, images: Images, method: str, ratio: float, seed: int
) -> Iterator[tuple[str, nn.Module, dict[str, Any]]]:
    """The network cut in every way, with what is known of the cut."""
    trained: tuple[dict[str, Tensor], dict[str, Any]] | None = None
    for way in WAYS[method]:
        stage = begin(args, images, method, ratio, way, seed)
        model = stage.graph.model
        if stage.trains and trained is None:
            train(model, images.batches(seed), args.stage_steps, args.stage_lr, stage)
            assert stage.module is not None
            trained = copy.deepcopy((model.state_dict(), stage.module.state_dict()))
        elif trained is not None:
            assert stage.module is not None
            model.load_state_dict(trained[0])
            stage.module.load_state_dict(trained[1])
        began, dense = time.perf_counter(), stage.graph.macs()
        torch.manual_seed(seed)
        cut = stage.finish(batches=[x for x, _ in islice(images.batches(2000 + seed), RECALIBRATION)]).cut
        seconds = round(time.perf_counter() - began, 1)
        macs = stage.graph.macs()
        found = {"macs": macs, "dense_macs": dense, "forecast": cut.forecast, "measured": cut.measured}
        yield way, model, {**found, "loss": cut.loss, "cut_seconds": seconds}


def trial(args: argparse.Namespace) -> None:
    """Do what is not in the file yet."""
    images, done = Images(args.data), read(args.out)
    for seed, method, ratio in product(args.seeds, args.methods, args.ratios):
        wanted = product(WAYS[method], args.recovery)
        keys = {(r["method"], r["ratio"], r["compensate"], r["seed"], r["recovery"]) for r in done}
        if all((method, ratio, way, seed, length) in keys for way, length in wanted):
            continue
        cuts = list(networks(args, images, method, ratio, seed))
        for length, (way, cut_network, found) in product(sorted(args.recovery), cuts):
            if (method, ratio, way, seed, length) in keys:
                continue
            model, began = copy.deepcopy(cut_network), time.perf_counter()
            steps = round(length * len(images.labels) / BATCH * found["dense_macs"] / found["macs"])
            train(model, images.batches(3000 + seed), steps, args.lr)
            row = {"method": method, "ratio": ratio, "compensate": way, "seed": seed, "recovery": length}
            row |= {"error": error(model, images), "seconds": round(time.perf_counter() - began, 1), **found}
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: list[dict[str, Any]]) -> None:
    """One line for each way, the mean over the seeds; in brackets how many there were."""
    lengths = sorted({row["recovery"] for row in rows})
    print("\n| method | MACs | compensate | rise by the cut, nats | " + " | ".join(f"{n:g}" for n in lengths) + " |")
    print("|---|---|---|---|" + "---|" * len(lengths))
    for method, ratio, way in dict.fromkeys((r["method"], r["ratio"], r["compensate"]) for r in rows):
        mine = [r for r in rows if (r["method"], r["ratio"], r["compensate"]) == (method, ratio, way)]
        cells = []
        for length in lengths:
            errors = [r["error"] for r in mine if r["recovery"] == length]
            cells.append(f"{mean(errors):.2f} ({len(errors)})" if errors else "")
        rises = list({r["seed"]: r["measured"] for r in mine}.values())
        print(f"| `{method}` | {ratio:g}x | {way} | {mean(rises):.3f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["uniform", "rrbp"], choices=list(WAYS))
    parser.add_argument("--ratios", nargs="+", type=float, default=[2.0, 4.0])
    parser.add_argument("--recovery", nargs="+", type=float, default=[0.0, 0.5, 2.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--stage-steps", type=int, default=200)
    parser.add_argument("--stage-lr", type=float, default=0.01)
    parser.add_argument("--lr", type=float, default=0.05)
    arguments = parser.parse_args()
    trial(arguments)
    table(read(arguments.out))
