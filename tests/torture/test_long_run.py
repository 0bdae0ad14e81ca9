"""A long run holds no more at its end than at its beginning: memory, open files, tensors.

More than 10,000 steps with 27 cuts, in ``make torture`` alone: rates need some forty steps to decide anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.runs.quick import events, overrides
from tests.torture import chain
from tests.torture.chain import LAYERS

SETTLED = 3
"""From this stage on nothing is loaded or allocated for the first time."""
PRICE = "prune.price={nats_per_example=30}"
"""Far more than ten classes can be worth (ln 10 nats), so that every one of 27 stages cuts."""
MOST_MB = 8.0
"""What the log of 27 stages and the allocator's fragments may come to."""


@dataclass(frozen=True)
class Held:
    """What a process held whenever a stage was over."""

    steps: int
    cuts: int
    mb: list[float]
    handles: list[int]
    tensors: list[int]

    def line(self) -> str:
        return (
            f"{self.steps:,} steps with {self.cuts} cuts: {self.mb[SETTLED]:.1f} MB after stage {SETTLED + 1}, "
            f"{self.mb[-1]:.1f} MB at the end (at most {max(self.mb):.1f}); open files {self.handles[SETTLED]}, "
            f"{self.handles[-1]}; tensors {self.tensors[SETTLED]:,}, {self.tensors[-1]:,}"
        )


def long_run(folder: Path, examples: int) -> Held:
    """Prune the chain by a command of its own, with as many steps a stage as batches of 16 go into the examples."""
    settings = (
        f"model.name={chain.__file__}:chain",
        f"runtime.tracker={chain.__file__}:watch",
        f"data.limit={examples}",
        "data.val=100",
        *(f"{phase}.batch_size=16" for phase in ("pretrain", "prune", "finetune")),
        *(f"{phase}.epochs=1" for phase in ("pretrain", "prune", "finetune")),
        *("prune.settle=0", "prune.confidence=0", "prune.max_rise=1000", PRICE),
        *("runtime.threads=1", "runtime.recalibrate=3", "runtime.time=false", "runtime.checkpoint_seconds=2"),
        *("runtime.precision=32-true", "runtime.channels_last=false"),
    )
    words = [sys.executable, "-m", "rbprune", "prune", "demo", "--out", str(folder / "run"), *overrides(settings)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen: list[dict[str, Any]] = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    stages = [event for event in events(folder / "run") if event["event"] == "stage"]
    cut = sum(any(before > after for before, after in event["channels"].values()) for event in stages)
    steps = (len(stages) + 2) * (examples // 16)
    return Held(steps, cut, *([line[name] for line in seen] for name in ("mb", "handles", "tensors")))


def check(held: Held) -> None:
    print(f"\n{held.line()}")
    assert held.cuts == len(held.mb) == LAYERS
    assert max(held.mb[SETTLED:]) - held.mb[SETTLED] < MOST_MB, held.mb
    assert set(held.handles[SETTLED:]) == {held.handles[SETTLED]}, held.handles
    assert set(held.tensors[SETTLED:]) == {held.tensors[SETTLED]}, held.tensors


@pytest.mark.torture
@pytest.mark.slow
def test_ten_thousand_steps_hold_no_more_than_the_first(tmp_path: Path) -> None:
    held = long_run(tmp_path, 5600)
    check(held)
    assert held.steps >= 10_000
