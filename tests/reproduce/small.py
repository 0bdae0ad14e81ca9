"""A small table, and runs of a second that stand behind it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rbprune import models
from rbprune.reproduce.experiments import Experiment, PaperRun
from rbprune.reproduce.page import Reproduction, write_page
from rbprune.reproduce.run import reproduce
from tests.runs.quick import SMALL

QUICK = (
    *SMALL,
    "pretrain.epochs=2",
    "prune.epochs=1",
    "prune.rate_lr=0.5",
    "prune.price.nats_per_example=0.3",
    "prune.settle=0",
    "prune.confidence=0",
    "prune.max_rise=100",
    "finetune.epochs=2",
)
RBP = PaperRun("demo-rbp", "RBP", "demo")
IBP = PaperRun("demo-ibp", "IBP", "demo", ("prune.method=ibp",))
IMPOSSIBLE = PaperRun("demo-slimming", "SBP", "demo", ("prune.method=slimming", "prune.macs_ratio=2"))
TABLE = Experiment("cifar10", "A small table", (RBP, IBP, IMPOSSIBLE))


def small_table(factory: pytest.TempPathFactory) -> Path:
    """The small table with its runs and its page, made once for all tests that read it; nobody may change it."""
    out = factory.getbasetemp() / "small-table"
    if not out.exists():
        write_page(run(out, TABLE), out, "rbprune reproduce cifar10")
    return out


@contextmanager
def shapes_only() -> Iterator[None]:
    """Inside, networks are built without numbers in them, which takes no time and is enough to count them."""

    def on_meta(plain: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **options: Any) -> Any:
            with torch.device("meta"):
                return plain(*args, **options)

        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "build", on_meta(models.build))
        patch.setattr(models, "example_input", on_meta(models.example_input))
        yield


def run(folder: Path, experiment: Experiment, settings: tuple[str, ...] = QUICK) -> Reproduction:
    """Reproduce an experiment with quick runs."""
    return reproduce(experiment, folder, settings, console=Console(file=io.StringIO()), command=[])
