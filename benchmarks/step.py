"""How much longer a training step takes with channel noise: the ratio to a plain step, interleaved in one run.

    python benchmarks/step.py [--rounds 15] [--batch 128] [--fast] [--threads 2] [--clock cpu]

``--fast`` measures bf16 and channels-last, which the CIFAR10 recipes choose where bf16 is computed; otherwise float32,
contiguous.
``--clock cpu`` counts the time of this process only, for a machine that does other work too; give it one thread.
VGG16 is measured with noise on each of three sites in turn (RBP trains one at a time), ResNet-56 with noise on all 25
sites at once (RRBP).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from rbprune import Pruner, models
from rbprune.utils.memory import keep_freed_memory

CASES = {
    "vgg16-cifar": [["features.0"], ["features.7"], ["features.20"]],
    "resnet56-cifar": [None],
}


def stepper(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, fast: bool, pruner: Pruner | None, number: int
) -> Callable[[], None]:
    """A function that makes one training step, plain or with noise."""
    stage = None if pruner is None else pruner.stage(number, remember=False)
    optimizers: list[torch.optim.Optimizer] = [torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)]
    if stage is not None:
        optimizers.append(torch.optim.Adam([stage.factors.rate], lr=1e-2))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=fast):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        if stage is not None:
            loss = loss + stage.kl()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def measure(
    name: str, sites: list[str] | None, batch: int, rounds: int, fast: bool, clock: Callable[[], float]
) -> dict[str, object]:
    """Median times of both kinds of step, taken in turns."""
    torch.manual_seed(0)
    layout = torch.channels_last if fast else torch.contiguous_format
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout)
    y = torch.randint(10, (batch,))
    plain_model = models.build(name).to(memory_format=layout)  # type: ignore[call-overload]
    noisy_model = models.build(name).to(memory_format=layout)  # type: ignore[call-overload]
    method = "rbp" if sites else "rrbp"
    pruner = Pruner(noisy_model, x[:2], dataset_size=50_000, method=method, only=sites, rates="adam")
    steps = {"plain": stepper(plain_model, x, y, fast, None, 0), "noise": stepper(noisy_model, x, y, fast, pruner, 0)}
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    for number in range(rounds + 2):
        for kind in ("plain", "noise") if number % 2 else ("noise", "plain"):
            began = clock()
            steps[kind]()
            if number >= 2:
                times[kind].append(clock() - began)
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    ratio = statistics.median(n / p for n, p in zip(times["noise"], times["plain"], strict=True))
    return {
        "network": name,
        "sites": sites or "all first convolutions (25)",
        "plain_ms": round(1000 * medians["plain"], 1),
        "noise_ms": round(1000 * medians["noise"], 1),
        "ratio": round(ratio, 3),
    }


def main() -> None:
    """Print one JSON line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--only", choices=CASES, default=None)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    for name, cases in CASES.items():
        if options.only in (None, name):
            for sites in cases:
                result = measure(name, sites, options.batch, options.rounds, options.fast, clock)
                print(
                    json.dumps({**result, "fast": options.fast, "threads": options.threads, "clock": options.clock}),
                    flush=True,
                )


if __name__ == "__main__":
    main()
