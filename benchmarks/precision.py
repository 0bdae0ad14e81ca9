"""What ``runtime.precision = "auto"`` chooses on this machine, and how fast the others are.

    python benchmarks/precision.py [--models resnet20-cifar,vgg16-cifar] [--batch 128] [--threads 1] [--repeats 3]

For each network the measurement that a run makes before it starts (training steps of a dense network in turns, the
median of three), as often as ``--repeats`` says: how far they are apart tells how far one can be trusted.
``speed`` is how many times faster a step is than in float32 with contiguous memory; null: given up as clearly slower.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.nn.functional as F

from rbprune import models, trace
from rbprune.measure.machine import cpu_name
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.precision import Arithmetic, computes_bf16, fastest
from rbprune.train.step_time import time_steps
from rbprune.utils.memory import keep_freed_memory

ALL = [Arithmetic(precision, layout) for precision in ("32-true", "bf16-mixed") for layout in (False, True)]


def measure(name: str, batch: int, engine: Engine) -> dict[str, object]:
    """The times of one decision."""
    torch.manual_seed(0)
    model = models.build(name)
    data = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    macs = batch * trace(model, data[0][:2]).macs()
    began = time.perf_counter()
    modes = [(option.autocast, option.channels_last) for option in ALL]
    times = time_steps(model, lambda: data, F.cross_entropy, modes, engine, macs=macs)
    took = time.perf_counter() - began
    seconds = {option: found for option, found in zip(ALL, times, strict=True) if found is not None}
    plain = seconds[ALL[0]]
    return {
        "network": name,
        "float32_contiguous_ms": round(1000 * plain, 1),
        "speed": {str(each): round(plain / seconds[each], 2) if each in seconds else None for each in ALL},
        "chosen": str(fastest({each: s for each, s in seconds.items() if _offered(each, engine)})),
        "measured_in_seconds": round(took, 2),
    }


def _offered(option: Arithmetic, engine: Engine) -> bool:
    return option.autocast is None or computes_bf16(engine.fabric.device)


def main() -> None:
    """Print one JSON line per network and repeat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet20-cifar")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    engine = Engine(RuntimeSettings(accelerator="cpu"))
    machine = {"threads": options.threads, "cpu": cpu_name(), "bf16": computes_bf16(engine.fabric.device)}
    for name in options.models.split(","):
        for _ in range(options.repeats):
            print(json.dumps({**measure(name, options.batch, engine), **machine}), flush=True)


if __name__ == "__main__":
    main()
