"""Latency as a cost: foretold against measured, and what rounded widths gain.

    python benchmarks/latency.py table [--models vgg16-cifar,torchvision:resnet50,torchvision:mobilenet_v2]
        [--backend onnxruntime] [--batch 1] [--clock cpu]
    python benchmarks/latency.py paper [--backends onnxruntime,compile,eager] [--batches 1,32]

``table`` calibrates each network and prints measured and foretold microseconds of whole networks, those that the rest
was fitted to and those that it was not; all are measured in turns. ``paper`` takes VGG16 at the widths that the paper
prints for CIFAR10, as they are and rounded to the nearest multiple of 8 and of 16, and prints the ratio of latencies
and of MACs, dense / pruned, and the one over the other. One thread; networks take turns.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn

from rbprune import models, trace
from rbprune.graph import ChannelGraph
from rbprune.measure.calibrate import calibrate, told
from rbprune.measure.count import kept_widths
from rbprune.measure.latency import threads_set
from rbprune.measure.measuring import Measuring

PAPER = "50-63-123-108-104-57-23-14-9-8-6-7-11-11-12"


def table(arguments: argparse.Namespace) -> None:
    for name in arguments.models.split(","):
        for batch in map(int, arguments.batches.split(",")):
            model = models.build(name)
            how = Measuring(batch=batch, backend=arguments.backend, clock=arguments.clock, rounds=arguments.rounds)
            found = calibrate(model, models.example_input(name, model), name, how)
            print(f"{name}, {found.on}, step {found.step}", flush=True)
            for line in told(found):
                print(f"  {line}", flush=True)


def rounded(width: int, step: int, channels: int) -> int:
    """The nearest multiple, at least one step, at most all channels."""
    return min(channels, max(step, int(width / step + 0.5) * step))


def cut(dense: nn.Module, x: torch.Tensor, step: int) -> tuple[nn.Module, ChannelGraph, list[int]]:
    model = copy.deepcopy(dense)
    graph = trace(model, x)
    widths = {name: rounded(w, step, graph[name].channels) for name, w in kept_widths(graph, PAPER).items()}
    graph.remove({name: range(width, graph[name].channels) for name, width in widths.items()})
    return model, graph, list(widths.values())


def paper(arguments: argparse.Namespace) -> None:
    dense = models.build("vgg16-cifar").eval()
    x = models.example_input("vgg16-cifar", dense)[:1]
    macs = trace(dense, x).macs()
    networks: dict[str, nn.Module] = {"dense": dense}
    ratios = {"dense": 1.0}
    for step in (1, 8, 16):
        model, graph, widths = cut(dense, x, step)
        networks[f"round to {step}"], ratios[f"round to {step}"] = model.eval(), macs / graph.macs()
        print(f"round to {step}: {'-'.join(map(str, widths))}, {macs / graph.macs():.2f}x fewer MACs")
    print("backend, layout | batch | network | us | latency ratio | MACs ratio | latency / MACs")
    for backend in arguments.backends.split(","):
        backend, _, layout = backend.partition("+")
        for batch in map(int, arguments.batches.split(",")):
            how = Measuring(
                batch=batch,
                backend=backend,
                clock=arguments.clock,
                rounds=arguments.rounds,
                channels_last=layout == "channels-last",
            )
            how.check()
            images = torch.randn(batch, *x.shape[1:], generator=torch.Generator().manual_seed(0))
            with threads_set(1), torch.inference_mode():
                calls = {n: how.prepared(copy.deepcopy(m), images, whole=True) for n, m in networks.items()}
                times = how.times(calls)
            for name, us in times.items():
                ratio = times["dense"] / us
                row = f"{backend} {layout} | {batch} | {name} | {us:.0f} | {ratio:.2f}x | {ratios[name]:.2f}x"
                print(f"{row} | {ratio / ratios[name]:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["table", "paper"], default="paper")
    parser.add_argument("--models", default="vgg16-cifar,torchvision:resnet50,torchvision:mobilenet_v2")
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--backends", default="onnxruntime,compile,eager,eager+channels-last")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--clock", default="cpu", choices=["wall", "cpu"])
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    {"table": table, "paper": paper}[arguments.what](arguments)


if __name__ == "__main__":
    main()
