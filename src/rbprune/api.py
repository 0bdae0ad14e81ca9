"""``rbprune.prune``: a trained model, a loader, one call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from rich.console import Console
from torch import nn

from rbprune.export.network import PrunedNetwork
from rbprune.export.program import Batch
from rbprune.export.samples import Samples
from rbprune.export.write import Exported, export_network
from rbprune.graph import Plan
from rbprune.logging.console import cost_line
from rbprune.measure.run_latency import make_timer
from rbprune.methods import Price
from rbprune.pruner import Loss
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import build_settings, merge
from rbprune.settings.sections import Settings
from rbprune.train.runner import Runner
from rbprune.train.state import RunData
from rbprune.train.stream import Batch as LabelledBatch
from rbprune.train.stream import LoaderStream


@dataclass
class Result:
    """A pruned model and how it came about."""

    model: nn.Module
    plan: Plan
    """What has been removed from the model as it was built, also by earlier calls."""
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    config: Settings
    example_inputs: Any = None
    """What one call of the model takes."""

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: weights, plan, settings, events, summary and report."""
        run = RunFolder(folder)
        run.check_empty("choose another folder")
        run.write_network(self.model, self.plan)
        run.begin(self.config)
        run.write_events(self.events)
        run.finish(self.summary)
        return run.path

    def export(
        self,
        out: str | Path,
        *,
        format: str = "onnx",
        int8: bool = False,
        batch: Batch = "dynamic",
        inputs: Any = None,
        calibration: Iterable[LabelledBatch] | None = None,
        validation: Iterable[LabelledBatch] | None = None,
    ) -> Exported:
        """Write the pruned model for another runtime: to a folder for the Hugging Face hub, or to a file alone.

        The file is checked on ``inputs`` (the example inputs of the run by default) against the model before it gets
        its name. ``int8`` needs ``calibration``, training batches of (inputs, targets); with ``validation`` it tells
        the error before and after.
        """
        given = inputs is not None
        origin = "inputs that were given" if given else "the example inputs of the run"
        samples = Samples(
            inputs if given else self.example_inputs,
            origin,
            calibration=None if calibration is None else lambda: (batch[0] for batch in calibration),
            held_out=None if validation is None else lambda: validation,
        )
        return export_network(self._network(), samples, out, format=format, int8=int8, batch=batch)

    def _network(self) -> PrunedNetwork:
        facts = self.config.model
        shape = tuple(facts.input_shape) if facts.input_shape else None
        return PrunedNetwork(self.model, self.plan, facts.name, facts.classes, shape, self.summary, self.config.data)


def prune(
    model: nn.Module,
    train_loader: Iterable[LabelledBatch],
    *,
    example_inputs: Any,
    val_loader: Iterable[LabelledBatch] | None = None,
    test_loader: Iterable[LabelledBatch] | None = None,
    method: str | None = None,
    price: Price | None = None,
    macs_ratio: float | None = None,
    loss_fn: Loss = F.cross_entropy,
    dataset_size: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | Iterable[str] = (),
    console: Console | None = None,
) -> Result:
    """Prune a trained model in place and fine-tune it; called again, it goes on from where the model is.

    Errors before and after are measured on ``test_loader``, or else on ``val_loader``. What is not given has the same
    default as in a recipe and in ``Pruner``.

    Args:
        model: The trained network.
        train_loader: Batches of (inputs, targets), the same number in every epoch.
        example_inputs: What one call of the model takes: a tensor, a tuple of arguments, or a mapping of names to them.
        val_loader: Data that the network has not seen, for choices and for the progress lines.
        test_loader: Data that is looked at twice, before and after.
        method: ``"rbp"`` by default; docs/methods.md has all of them.
        price: What a channel must bring to stay: a higher one makes the network smaller. By default it
            follows what the network explains: 2 nats per example for one that is sure of ten classes.
        macs_ratio: The MACs end so many times fewer, and the price is found.
        loss_fn: ``loss_fn(outputs, targets)``, a mean negative log-likelihood; errors (``F.mse_loss``, ``F.l1_loss``,
            Huber) are made one by the residuals of the trained network. The rates go to their fixed point wherever the
            loss has a second derivative, and are found by Adam otherwise; ``prune.rates`` decides it.
        dataset_size: The number of training examples; asked of the loader when it is not given.
        seed: Of everything random.
        options: Other settings, as nested mappings (``{"prune": {"epochs": 1}}``) or as on the command line
            (``["prune.epochs=1"]``); docs/recipes.md has all of them.
        console: Where progress is shown; standard error by default.
    """
    given = {"method": method, "price": price, "macs_ratio": macs_ratio}
    tables, overrides = (options, ()) if isinstance(options, Mapping) else ({}, tuple(options))
    base = {
        "seed": seed,
        "model": {"name": type(model).__name__},
        "data": {"name": "loader"},
        "prune": {name: value for name, value in given.items() if value is not None},
    }
    settings = build_settings(merge(base, tables), overrides, where="options")
    train = LoaderStream(train_loader, dataset_size, name="train_loader")
    val = None if val_loader is None else LoaderStream(val_loader, name="val_loader")
    test = val if test_loader is None else LoaderStream(test_loader, name="test_loader")
    data = RunData(train=lambda batch_size: train, val=val, test=test)
    runner = Runner(settings, model, example_inputs, data, loss_fn, console=console)
    if settings.runtime.time:
        dense = copy.deepcopy(model)
        runner.timer = make_timer(lambda: dense, example_inputs)
    summary = runner.run()
    if runner.engine.main:
        runner.console.print(cost_line(summary), markup=False, highlight=False, soft_wrap=True)
    if summary.get("verdict", {}).get("level") == "bad":
        warnings.warn(f"the verdict on this run is bad: {summary['verdict']['text']}", stacklevel=2)
    return Result(model, runner.pruner.plan, summary, runner.journal.events, runner.settings, example_inputs)
