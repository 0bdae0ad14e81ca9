"""A long chain of small convolutions, and a tracker that notes what its process holds: used by ``test_long_run.py``."""

from __future__ import annotations

import gc
import json
import os
import resource
from pathlib import Path
from typing import Any

import torch
from torch import nn

LAYERS = 27
WIDTH = 8


def chain(classes: int = 10) -> nn.Module:
    """Convolutions one after the other, each a site of its own, on images of a quarter of the size."""
    layers: list[nn.Module] = []
    for number in range(LAYERS):
        first = number == 0
        layers += [
            nn.Conv2d(1 if first else WIDTH, WIDTH, 3, stride=4 if first else 1, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * WIDTH, classes))


class Watch:
    """Writes a line for every stage that is over: memory, open files, tensors."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def log(self, event: dict[str, Any]) -> None:
        """Look at this process when a stage has cut."""
        if event["event"] != "stage":
            return
        gc.collect()
        found = {
            "stage": event["stage"],
            "mb": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20,
            "handles": len(os.listdir("/proc/self/fd")),
            "tensors": sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()),
        }
        with self.file.open("a") as file:
            file.write(json.dumps(found) + "\n")

    def close(self) -> None:
        """Nothing is held."""


def watch(folder: Path) -> Watch:
    """The tracker of a run in ``folder``."""
    return Watch(folder.with_suffix(".jsonl"))
