"""Images per second of rbprune's fine-tuning beside plain PyTorch loops, interleaved in one run.

    python benchmarks/throughput.py [--rounds 15] [--steps 1] [--models resnet20-cifar,vgg16-cifar] [--data DIR]

Everything trains as the CIFAR10 recipes do where bf16 is computed: batch 128, bf16, channels-last, SGD with momentum,
cross-entropy. Turns of ``--steps`` each, in CPU time of the process, so that what else the machine does matters little:

- ours: the steps that ``rbprune prune`` makes in fine-tuning, with all that happens between two of them
  (no distillation, no validation, no bars);
- plain: a loop as one would write it by hand, fed with the very same batches, so that only the loop differs; both must
  come to the same losses, to the bit;
- again: the same plain loop once more; how far it is from plain says how exact all this is;
- own: the same loop with the augmentation that one would write by hand, one batch at a time with tensors;
- data: only fetching, augmenting and placing our batches, for its share of our step.

``ratio`` is our images per second / theirs (quartiles beside it). Without --data the images are random.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import data, models
from rbprune.data import TensorSource
from rbprune.data.cifar10 import CIFAR10, read_cifar10
from rbprune.measure.machine import cpu_name
from rbprune.runs.build import make_run_data
from rbprune.settings.recipe import load_recipe
from rbprune.train.runner import Runner
from rbprune.utils.interrupt import Signals
from rbprune.utils.memory import keep_freed_memory
from rbprune.utils.seeds import mix

RECIPES = {"resnet20-cifar": "resnet20-cifar10", "resnet56-cifar": "resnet56-cifar10", "vgg16-cifar": "vgg16-cifar10"}
BAR, DATA_BAR = 0.97, 0.05
WARM_UP = 3
"""Turns until the process has all the memory that it will need."""
LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 5e-4

Steps = Iterator[float | None]


def read(folder: Path | None) -> tuple[Tensor, Tensor]:
    """CIFAR10's training images and labels, or random ones of the same kind."""
    if folder is not None:
        return read_cifar10(folder, "train")
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50_000, *CIFAR10.shape), dtype=torch.uint8, generator=generator)
    return images, torch.randint(CIFAR10.classes, (50_000,), generator=generator)


def make_runner(name: str, images: Tensor, labels: Tensor, batch: int) -> Runner:
    """A run that fine-tunes this network."""
    settings = [f"finetune.batch_size={batch}", f"finetune.lr={LR}", f"finetune.weight_decay={WEIGHT_DECAY}"]
    plain = [
        "finetune.decay=constant",
        "finetune.warmup=0",
        "finetune.distill=0",
        "finetune.epochs=1000",
        "runtime.accelerator=cpu",
        "runtime.precision=bf16-mixed",
        "runtime.channels_last=true",
    ]
    config = load_recipe(RECIPES[name], settings + plain)
    source = TensorSource(
        images, labels, mean=CIFAR10.mean, std=CIFAR10.std, crop_padding=CIFAR10.crop_padding, flip=CIFAR10.flip
    )
    torch.manual_seed(0)
    whole = data.Data(source, None, source, CIFAR10.classes, CIFAR10.shape)
    return Runner(config, models.build(name), torch.zeros(2, *CIFAR10.shape), make_run_data(whole, 0), F.cross_entropy)


def ours(runner: Runner) -> Steps:
    """As ``Runner._run_phase`` goes through its steps."""
    phase = runner.phases[-1]
    runner.engine.place(runner.model)
    current = runner._begin(phase)
    with Signals() as signals:
        while not current.over:
            for loss in current.run_epoch():
                runner.state.cost[phase.kind] += 1 / current.stream.steps
                runner.journal.progress.step(loss)
                runner._between_steps(signals)
                yield loss


def same_batches(runner: Runner) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches that ``ours`` trains on."""
    stream, epoch = runner.data.train(runner.phases[-1].optim.batch_size), 0
    while True:
        yield from stream.epoch(mix(runner.phases[-1].number, epoch))
        epoch += 1


def own_batches(images: Tensor, labels: Tensor, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random crops out of black margins, mirrored half of the time, normalised."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (CIFAR10.mean, CIFAR10.std))
    margin, height, width = CIFAR10.crop_padding, *CIFAR10.shape[1:]
    first, channels = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(3).view(1, -1, 1, 1)
    while True:
        for index in torch.randperm(len(images)).split(batch):
            if len(index) < batch:
                break
            padded = F.pad(images[index], (margin,) * 4)
            top, left = torch.randint(2 * margin + 1, (2, batch, 1, 1, 1))
            rows = top + torch.arange(height).view(1, 1, -1, 1)
            columns = left + torch.arange(width).view(1, 1, 1, -1)
            x = padded[first, channels, rows, columns]
            x = torch.where(torch.rand(batch, 1, 1, 1) < 0.5, x.flip(3), x)
            yield (x.float() / 255 - mean) / std, labels[index]


def plain(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> Steps:
    """A training loop written by hand."""
    model.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, nesterov=True, weight_decay=WEIGHT_DECAY)
    for x, y in batches:
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def only_data(runner: Runner) -> Steps:
    """Our batches, placed and thrown away."""
    for inputs, targets in same_batches(runner):
        runner.engine.put(inputs, share=True)
        runner.engine.put(targets, share=True)
        yield None


def fresh(name: str) -> nn.Module:
    """The network that ``make_runner`` trains."""
    torch.manual_seed(0)
    return models.build(name)


def take_turns(loops: dict[str, Steps], rounds: int, steps: int) -> tuple[dict[str, list[float]], bool]:
    """CPU seconds per step of each loop in each round, and whether ours and the plain one had the same losses."""
    losses: dict[str, list[float | None]] = {loop: [] for loop in loops}
    times: dict[str, list[float]] = {loop: [] for loop in loops}
    order = random.Random(0)
    for number in range(-WARM_UP, rounds):
        for loop in order.sample(list(loops), len(loops)):
            began = time.process_time()
            losses[loop] += [next(loops[loop]) for _ in range(steps)]
            if number >= 0:
                times[loop].append((time.process_time() - began) / steps)
    return times, losses["ours"] == losses["plain"]


def ratio(top: list[float], bottom: list[float], digits: int = 3) -> dict[str, float]:
    """Median and quartiles of the ratios, round by round."""
    ratios = [a / b for a, b in zip(top, bottom, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"median": round(middle, digits), "low": round(low, digits), "high": round(high, digits)}


def measure(name: str, images: Tensor, labels: Tensor, *, batch: int, rounds: int, steps: int) -> dict[str, object]:
    """All loops in turns."""
    runner = make_runner(name, images, labels, batch)
    loops: dict[str, Steps] = {
        "ours": ours(runner),
        "plain": plain(fresh(name), same_batches(runner)),
        "again": plain(fresh(name), same_batches(runner)),
        "own": plain(fresh(name), own_batches(images, labels, batch)),
        "data": only_data(runner),
    }
    times, same = take_turns(loops, rounds, steps)
    trained = ("ours", "plain", "again", "own")
    return {
        "network": name,
        "images_per_cpu_second": {loop: round(batch / statistics.median(times[loop]), 1) for loop in trained},
        "ratio": {loop: ratio(times[loop], times["ours"]) for loop in ("plain", "again", "own")},
        "again_to_plain": ratio(times["plain"], times["again"]),
        "bar": BAR,
        "data_share": ratio(times["data"], times["ours"], 4),
        "data_bar": DATA_BAR,
        "data_ms": round(1000 * statistics.median(times["data"]), 2),
        "same_losses": same,
    }


def main() -> None:
    """Print one JSON line per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=1, help="of one turn")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default=",".join(RECIPES))
    parser.add_argument("--data", type=Path, default=None)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: quartiles need at least 2")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    images, labels = read(options.data)
    for name in options.models.split(","):
        found = measure(name, images, labels, batch=options.batch, rounds=options.rounds, steps=options.steps)
        machine = {"threads": options.threads, "cpu": cpu_name(), "torch": torch.__version__}
        print(json.dumps(found | {"rounds": options.rounds, "steps": options.steps} | machine), flush=True)


if __name__ == "__main__":
    main()
