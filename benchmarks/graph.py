"""Finding the channels of a network and removing half of every site: time and memory beside torch-pruning's.

    python benchmarks/graph.py [--rounds 3] [--models resnet50,vgg16_bn,densenet121] [--no-peer] [--no-memory]

One thread; both tools work on the same untrained torchvision network at 224 x 224, in turns, in one process. Two things
are measured, by the processor's time of the process, of which others on the machine take nothing away: finding what
belongs together (``rbprune.trace`` beside ``DependencyGraph().build_dependency``), and finding it and removing the half
with the smallest weights (``graph.remove`` beside the construction of a pruner and one step of it). Memory is the peak
above the process before tracing, in a process of its own, beside what the model and one forward pass take there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import rbprune
from rbprune import models

EXAMPLE = (1, 3, 224, 224)


def build(name: str) -> nn.Module:
    """The untrained network, the same one each time."""
    torch.manual_seed(0)
    return models.build(f"torchvision:{name}").eval()


def ours(model: nn.Module) -> tuple[float, float]:
    """Seconds of rbprune: to find the channels, and to remove half of them as well."""
    x = torch.zeros(EXAMPLE)
    began = time.process_time()
    graph = rbprune.trace(model, x)
    found = time.process_time() - began
    drop = {}
    for site in graph.sites:
        out = next(part for part in site.parts if part.role == "out")
        norms = graph.module(out.owner).weight.detach().flatten(1).norm(dim=1)[out.positions].sum(1)  # type: ignore[operator, union-attr]
        drop[site.name] = norms.argsort()[: site.channels // 2].tolist()
    graph.remove(drop)
    return found, time.process_time() - began


def peer(model: nn.Module) -> tuple[float, float]:
    """Seconds of torch-pruning: to find the channels, and to remove half of them as well."""
    import torch_pruning as tp

    x = torch.zeros(EXAMPLE)
    last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    began = time.process_time()
    tp.DependencyGraph().build_dependency(model, x)
    found = time.process_time() - began
    began = time.process_time()
    pruner = tp.pruner.MagnitudePruner(
        model, x, importance=tp.importance.MagnitudeImportance(p=2), pruning_ratio=0.5, ignored_layers=[last]
    )
    pruner.step()
    return found, time.process_time() - began


def resident(key: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at the peak."""
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) * 1024


def memory(name: str) -> dict[str, float]:
    """Megabytes: the model, one forward pass, and the peak while tracing and removing above the loaded model."""
    ours(build("squeezenet1_1"))  # whatever is loaded on first use
    model = build(name)
    size = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    Path("/proc/self/clear_refs").write_text("5")
    start = resident("VmRSS")
    ours(model)
    added = resident("VmHWM") - start
    model = build(name)
    Path("/proc/self/clear_refs").write_text("5")
    start = resident("VmRSS")
    with torch.no_grad():
        model(torch.zeros(EXAMPLE))
    forward = resident("VmHWM") - start
    return {"model_mb": size / 1e6, "forward_mb": forward / 1e6, "added_mb": added / 1e6}


def measure(name: str, rounds: int, with_peer: bool, with_memory: bool) -> dict[str, object]:
    """Median seconds of both tools, taken in turns."""
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(ours(build(name)))
        if with_peer:
            theirs.append(peer(build(name)))
    row: dict[str, object] = {"model": name}
    for number, what in enumerate(("find", "all")):
        seconds = statistics.median(each[number] for each in mine)
        row[f"rbprune_{what}_s"] = round(seconds, 3)
        if theirs:
            other = statistics.median(each[number] for each in theirs)
            row |= {f"torch_pruning_{what}_s": round(other, 3), f"ratio_{what}": round(seconds / other, 2)}
    if not with_memory:
        return row
    probe = subprocess.run([sys.executable, __file__, "--memory", name], capture_output=True, text=True, check=True)
    return row | {key: round(value, 1) for key, value in json.loads(probe.stdout).items()}


def main() -> None:
    """Print one JSON line per network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="resnet50,vgg16_bn,densenet121")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.memory:
        print(json.dumps(memory(options.memory)))
        return
    ours(build("squeezenet1_1"))
    for name in options.models.split(","):
        row = measure(name, options.rounds, not options.no_peer, not options.no_memory)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
