"""``rbprune.prune``: a trained model, a loader, one call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rbprune.graph import Plan
from rbprune.methods import Price
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import build_config
from rbprune.settings.sections import Config
from rbprune.train.objective import Loss
from rbprune.train.runner import Runner
from rbprune.train.state import Feed
from rbprune.train.stream import Batch, LoaderStream
from rbprune.utils.inputs import call
from rbprune.utils.modes import evaluating

DEFAULTS: dict[str, Any] = {
    "data": {"name": "loader"},
    "prune": {"epochs": 2, "lr": 1e-3, "optimizer": "adam", "rate_lr": 1e-2},
    "finetune": {"epochs": 5, "lr": 1e-3, "optimizer": "adam", "decay": "cosine"},
}
FIXED_POINT = ("prune.rates=fixed-point", "prune.rate_lr=0.05")
"""What ``rbp``, ``rrbp`` and ``ibp`` do to a classifier unless told otherwise: its rates settle sooner and clearer."""


@dataclass
class Result:
    """A pruned model and how it came about."""

    model: nn.Module
    plan: Plan
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    config: Config

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: weights, plan, settings, events, summary and report."""
        run = RunFolder(folder)
        run.check_empty("choose another folder")
        run.write_network(self.model, self.plan)
        run.begin(self.config)
        run.write_events(self.events)
        run.finish(self.summary)
        return run.path


def prune(
    model: nn.Module,
    train_loader: Iterable[Batch],
    *,
    example_inputs: Any,
    val_loader: Iterable[Batch] | None = None,
    test_loader: Iterable[Batch] | None = None,
    method: str = "rbp",
    price: Price | None = None,
    macs_ratio: float | None = None,
    loss_fn: Loss = F.cross_entropy,
    dataset_size: int | None = None,
    seed: int = 0,
    options: Iterable[str] = (),
    console: Console | None = None,
) -> Result:
    """Prune a trained model in place and fine-tune it.

    ``loss_fn(outputs, targets)`` is a mean negative log-likelihood. ``dataset_size`` is asked of the loader when it
    is not given. A higher ``price`` makes the network smaller; by default it is 2 nats per example, less for fewer than
    ten classes. With ``macs_ratio`` the MACs end so many times fewer, and the price is found. ``options`` are settings
    as on the command line, such as ``"prune.epochs=1"`` or ``"finetune.epochs=10"``. The rates of a classifier (outputs
    of shape (examples, classes), cross-entropy) go to their fixed point, those of other networks are found by Adam;
    ``"prune.rates=adam"`` decides it. Errors before and after are measured on ``test_loader``, or else on
    ``val_loader``.
    """
    options = list(options)
    classes = _classes(model, example_inputs, loss_fn)
    if classes is not None and method in ("rbp", "rrbp", "ibp") and _decides_nothing(options):
        options = [*FIXED_POINT, *options]
    aim = {"price": (price or _default_price(classes)).to_dict(), "macs_ratio": macs_ratio}
    raw = {**DEFAULTS, "seed": seed, "model": {"name": type(model).__name__}, "prune": {**DEFAULTS["prune"], **aim}}
    config = build_config(raw, [f"prune.method={method}", *options], where="options")
    train = LoaderStream(train_loader, dataset_size)
    val = None if val_loader is None else LoaderStream(val_loader)
    test = val if test_loader is None else LoaderStream(test_loader)
    feed = Feed(train=lambda batch_size: train, val=val, test=test)
    runner = Runner(config, model, example_inputs, feed, loss_fn, console=console)
    summary = runner.run()
    return Result(model, runner.graph.plan(), summary, runner.journal.events, config)


def _decides_nothing(options: list[str]) -> bool:
    """Whether it is left to us how the rates are found."""
    deciding = ("prune.rates", "prune.rate_lr", "prune.noise")
    return not any(option.partition("=")[0].strip() in deciding for option in options)


def _default_price(classes: int | None) -> Price:
    """The evidence in an example is at most log(classes): the price of the whole network keeps its proportion to it."""
    share = 1.0 if classes is None else min(1.0, math.log(classes) / math.log(10))
    return Price(nats_per_example=round(2.0 * share, 2))


def _classes(model: nn.Module, example_inputs: Any, loss_fn: Loss) -> int | None:
    """How many, where the outputs are their scores, so that the curvature of the loss is known from them."""
    if loss_fn is not F.cross_entropy and not isinstance(loss_fn, nn.CrossEntropyLoss):
        return None
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    inputs = tree_map_only(Tensor, lambda tensor: tensor.to(device), example_inputs)
    try:
        with evaluating(model), torch.no_grad():
            outputs = call(model, inputs)
    except Exception:  # tracing will say what is wrong with them
        return None
    scores = isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1
    return outputs.shape[1] if scores else None
