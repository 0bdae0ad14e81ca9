"""The export matrix: six networks, pruned to half of their MACs, in every format. The table of docs/deployment.md.

    python benchmarks/export.py [--networks lenet5 unet ...] [--threads 1] [--rounds 20]

Weights are random (pruned by the method ``uniform``, nothing is trained), so int8 is judged by its outputs and not by
an error. Each line is a row: the difference from PyTorch relative to the largest output, the size of the file and
milliseconds of CPU time for one example (which with one thread is the latency of an idle machine), all files of a
network and its dense and pruned PyTorch versions in turns.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import rbprune
from rbprune import models
from rbprune.export.formats import Format, open_file
from rbprune.export.network import PrunedNetwork
from rbprune.export.program import for_export
from rbprune.export.samples import Samples
from rbprune.export.signature import Signature
from rbprune.export.write import export_network
from rbprune.measure.latency import times_of, timings_of
from rbprune.measure.machine import machine

KINDS: list[tuple[Format, bool]] = [
    ("safetensors", False),
    ("pt2", False),
    ("onnx", False),
    ("onnx", True),
    ("openvino", False),
    ("openvino", True),
]


class UNet(nn.Module):
    """Two levels down, two up, with concatenated skips."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        one, two, four = width, 2 * width, 4 * width
        self.one, self.two, self.three = self.block(3, one), self.block(one, two), self.block(two, four)
        self.up = nn.ModuleList([nn.ConvTranspose2d(four, two, 2, 2), nn.ConvTranspose2d(two, one, 2, 2)])
        self.four, self.five = self.block(four, two), self.block(two, one)
        self.head = nn.Conv2d(width, 4, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        convolutions = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)]
        return nn.Sequential(*(part for c in convolutions for part in (c, nn.BatchNorm2d(outputs), nn.ReLU())))

    def forward(self, image: Tensor) -> Tensor:
        one = self.one(image)
        two = self.two(nn.functional.max_pool2d(one, 2))
        deep = self.three(nn.functional.max_pool2d(two, 2))
        two = self.four(torch.cat([self.up[0](deep), two], 1))
        return self.head(self.five(torch.cat([self.up[1](two), one], 1)))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet5": (lambda: models.build("lenet5"), (1, 28, 28)),
    "resnet20-cifar": (lambda: models.build("resnet20-cifar"), (3, 32, 32)),
    "vgg16-cifar": (lambda: models.build("vgg16-cifar"), (3, 32, 32)),
    "unet": (UNet, (3, 64, 64)),
    "torchvision:resnet18": (lambda: models.build("torchvision:resnet18"), (3, 224, 224)),
    "torchvision:mobilenet_v2": (lambda: models.build("torchvision:mobilenet_v2"), (3, 224, 224)),
}


def halved(model: nn.Module, x: Tensor) -> tuple[rbprune.Plan, float]:
    """Prune ``model`` in place to half of its MACs, and say how many times fewer they are."""
    before = rbprune.trace(model, x).macs()
    pruner = rbprune.Pruner(model, x, dataset_size=1000, method="uniform", macs_ratio=2.0)
    for stage in pruner:
        stage.finish(batches=[x])
    return pruner.plan, before / pruner.graph.macs()


def rows(name: str, rounds: int, place: Path) -> None:
    """Export one network in every format, check, time and print."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    dense, x = make(), torch.randn(8, *shape)
    model = copy.deepcopy(dense)
    plan, ratio = halved(model, x)
    network = PrunedNetwork(model, plan, name, input_shape=shape)
    samples = Samples(
        x, "random numbers", calibration=lambda: [torch.randn(64, *shape, generator=torch.Generator().manual_seed(1))]
    )
    calls: dict[str, Callable[[], Any]] = {}
    one = torch.randn(1, *shape)
    eager = {"dense": for_export(dense), "pruned": for_export(model)}
    calls |= {f"PyTorch {key}": (lambda module=module: module(one)) for key, module in eager.items()}
    told = {}
    for format, int8 in KINDS:
        began = time.perf_counter()
        try:
            found = export_network(network, samples, place / name.replace(":", "-"), format=format, int8=int8)
        except rbprune.errors.RbpruneError as error:
            print(f"| {name} | {format}{' int8' if int8 else ''} | refused: {error} |", flush=True)
            continue
        label = f"{format}{' int8' if int8 else ''}"
        told[label] = (found, time.perf_counter() - began)
        if format != "safetensors":
            run = open_file(format, found.file, _signature(found.file.parent), eager["pruned"])
            calls[label] = lambda run=run: run(one)
    timed = {t.network: t for t in timings_of(1, times_of(calls, rounds, lambda: None, time.process_time))}
    for key in ("PyTorch dense", "PyTorch pruned"):
        print(f"| {name} | {key} | | | {timed[key].ms.median:.3g} | {timed[key].ratio.median:.2f}x | |", flush=True)
    for label, (found, seconds) in told.items():
        ms = f"{timed[label].ms.median:.3g} | {timed[label].ratio.median:.2f}x" if label in timed else " | "
        size = f"{found.bytes / 1e6:.3g}"
        print(f"| {name} | {label} | {found.difference:.1e} | {size} | {ms} | {seconds:.0f} s |", flush=True)
    print(f"| {name} | MACs | | | | {ratio:.2f}x | |", flush=True)


def _signature(folder: Path) -> Signature:
    import json

    config = json.loads((folder / "config.json").read_text())
    return Signature(*(tuple(config[key]) for key in ("inputs", "outputs", "keywords")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"on {machine(torch.device('cpu'))}", flush=True)
    print("| network | as | difference | MB | ms | PyTorch dense / this | written in |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        for name in options.networks:
            with torch.enable_grad():
                rows(name, options.rounds, Path(place))


if __name__ == "__main__":
    main()
