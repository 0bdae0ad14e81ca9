"""``rbprune.prune``: a trained model, a loader, one call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from rbprune.errors import ConfigError, OutOfReachError
from rbprune.export.network import PrunedNetwork
from rbprune.export.program import Batch
from rbprune.export.samples import Samples
from rbprune.export.write import Exported, export_network
from rbprune.graph import Plan
from rbprune.graph.cost import MACS, find_cost
from rbprune.logging.console import cost_line
from rbprune.logging.trackers import Tracker, TrackerGroup, check_tracker
from rbprune.measure.run_latency import make_timer
from rbprune.methods import Price
from rbprune.pruner import Loss
from rbprune.runs.build import named_trackers
from rbprune.runs.folder import RunFolder
from rbprune.runs.frontier import Frontier, geometric_ratios, step_name, write_frontier
from rbprune.runs.memory_steps import prune_within_error
from rbprune.runs.point import first_point, point_after, step_ratio
from rbprune.runs.step_settings import searches
from rbprune.settings.recipe import build_settings, merge
from rbprune.settings.sections import Settings
from rbprune.train.runner import Runner
from rbprune.train.state import RunData, RunTrackers
from rbprune.train.stream import Batch as LabelledBatch
from rbprune.train.stream import LoaderStream, first_batch
from rbprune.utils.processes import is_main


@dataclass
class Result:
    """A pruned model and how it came about."""

    model: nn.Module
    plan: Plan
    """What has been removed from the model as it was built, also by earlier calls."""
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    config: Settings
    mistakes: tuple[dict[str, Any] | None, dict[str, Any] | None] = field(default=(None, None), repr=False)
    """Which validation examples the network got wrong before and after, where they are known."""
    example_inputs: Any = None
    """What one call of the model takes."""

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: weights, plan, settings, events, summary and report."""
        run = RunFolder(folder)
        run.check_empty("choose another folder")
        run.write_network(self.model, self.plan)
        run.write_mistakes(*self.mistakes)
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
        half: bool = False,
        batch: Batch = "dynamic",
        inputs: Any = None,
        calibration: Iterable[LabelledBatch] | None = None,
        validation: Iterable[LabelledBatch] | None = None,
    ) -> Exported:
        """Write the pruned model for another runtime: to a folder for the Hugging Face hub, or to a file alone.

        The file is checked on ``inputs`` (the example inputs of the run by default) against the model before it gets
        its name. ``int8`` needs ``calibration``, training batches of (inputs, targets); ``half`` rounds weights to
        16 bits; with ``validation`` both tell the error before and after.
        """
        given = inputs is not None
        origin = "inputs that were given" if given else "the example inputs of the run"
        samples = Samples(
            inputs if given else self.example_inputs,
            origin,
            calibration=None if calibration is None else lambda: (batch[0] for batch in calibration),
            held_out=None if validation is None else lambda: validation,
        )
        return export_network(self._network(), samples, out, format=format, int8=int8, half=half, batch=batch)

    def _network(self) -> PrunedNetwork:
        facts = self.config.model
        shape = tuple(facts.input_shape) if facts.input_shape else None
        return PrunedNetwork(self.model, self.plan, facts.name, facts.classes, shape, self.summary, self.config.data)


def prune(
    model: nn.Module,
    train_loader: Iterable[LabelledBatch],
    *,
    example_inputs: Any = None,
    val_loader: Iterable[LabelledBatch] | None = None,
    test_loader: Iterable[LabelledBatch] | None = None,
    method: str | None = None,
    price: Price | None = None,
    macs_ratio: float | None = None,
    max_error_rise: float | None = None,
    loss_fn: Loss = F.cross_entropy,
    dataset_size: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | Iterable[str] = (),
    console: Console | None = None,
    trackers: Sequence[Tracker] = (),
) -> Result:
    """Prune a trained model in place and fine-tune it; called again, it goes on from where the model is.

    Errors before and after are measured on ``test_loader``, or else on ``val_loader``. What is not given has the same
    default as in a recipe and in ``Pruner``.

    Args:
        model: The trained network.
        train_loader: Batches of (inputs, targets), the same number in every epoch.
        example_inputs: What one call of the model takes: a tensor, a tuple of arguments, or a mapping of names to them;
            by default the inputs of the first batch.
        val_loader: Data that the network has not seen, for choices and for the progress lines.
        test_loader: Data that is looked at twice, before and after.
        method: ``"rbp"`` by default; docs/methods.md has all of them.
        price: What a channel must bring to stay: a higher one makes the network smaller. By default it
            follows what the network explains: 2 nats per example for one that is sure of ten classes.
        macs_ratio: The MACs end so many times fewer, and the price is found.
        max_error_rise: Instead of a price or a ratio: as small as the network gets while its validation error is at
            most so many points above what it was; ``val_loader`` is needed. It takes several runs, on copies.
        loss_fn: ``loss_fn(outputs, targets)``, a mean negative log-likelihood; errors (``F.mse_loss``, ``F.l1_loss``,
            Huber) are made one by the residuals of the trained network. The rates go to their fixed point wherever the
            loss has a second derivative, and are found by Adam otherwise; ``prune.rates`` decides it.
        dataset_size: The number of training examples; asked of the loader when it is not given.
        seed: Of everything random.
        options: Other settings, as nested mappings (``{"prune": {"epochs": 1}}``) or as on the command line
            (``["prune.epochs=1"]``); docs/recipes.md has all of them.
        console: Where progress is shown; standard error by default.
        trackers: Each is handed every event as it happens (docs/integrations.md), and is yours to close. A search
            (``max_error_rise``) tells them of the events of what it found, at its end.
    """
    lent = [check_tracker(tracker, "trackers has") for tracker in trackers]
    given = {"method": method, "price": price, "macs_ratio": macs_ratio, "max_error_rise": max_error_rise}
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
    listening = RunTrackers(named_trackers(settings, None), lent)
    if example_inputs is None:
        with torch.random.fork_rng(devices=[]):
            example_inputs, _ = first_batch(train, 0)
    call = _Call(settings, model, example_inputs, data, loss_fn, console, listening)
    result = call.search() if searches(settings) else call.run()
    if is_main():
        shown = console or Console(stderr=True)
        shown.print(cost_line(result.summary), markup=False, highlight=False, soft_wrap=True)
    if result.summary.get("verdict", {}).get("level") == "bad":
        warnings.warn(f"the verdict on this run is bad: {result.summary['verdict']['text']}", stacklevel=2)
    return result


@dataclass
class FrontierResult(Frontier):
    """A frontier whose networks are at hand: ``results[k]`` is ``points[k + 1]``, and the first point is the model."""

    results: list[Result] = field(default_factory=list)


def frontier(
    model: nn.Module,
    train_loader: Iterable[LabelledBatch],
    *,
    example_inputs: Any = None,
    to: float,
    steps: int | None = None,
    factor: float | None = None,
    cost: str = MACS.name,
    out: str | Path | None = None,
    options: Mapping[str, Any] | Iterable[str] = (),
    **given: Any,
) -> FrontierResult:
    """Prune copies of a model further and further, each from the last result; the model itself is left as it is.

    Args:
        model: The trained network.
        train_loader: As in ``prune``.
        example_inputs: As in ``prune``.
        to: How many times smaller the last network shall be.
        steps: How many networks there shall be, evenly spread in the logarithm of their cost.
        factor: Or how many times smaller each is than the last, at most; 1.5 by default.
        cost: What falls: ``"macs"``, ``"params"``, or another name of ``rbprune.graph.cost.COSTS``.
        out: A new or empty folder for the networks, the table and the page, written after every step; ``rbprune pick``
            reads it.
        options: As in ``prune``.
        given: Anything else that ``prune`` takes, but for a ratio or ``max_error_rise``.
    """
    ratios, measured = geometric_ratios(to, steps=steps, factor=factor), find_cost(cost)
    for name in ("macs_ratio", "max_error_rise"):
        if given.get(name) is not None:
            raise ConfigError(f"a frontier decides how far each step goes: leave out {name} = {given[name]}, say to=")
    folder = None if out is None else Path(out)
    if folder is not None:
        RunFolder(folder).check_empty("choose another folder")
    plain = options if isinstance(options, Mapping) else list(options)
    found = FrontierResult(cost)
    for number, ratio in enumerate(ratios, 1):
        own = step_ratio(found.dense, found.points[-1], measured, ratio) if found.points else ratio
        start = found.results[-1].model if found.results else model
        try:
            result = prune(
                copy.deepcopy(start),
                train_loader,
                example_inputs=example_inputs,
                options=_with_ratio(plain, cost, own),
                **given,
            )
        except OutOfReachError as error:
            if not found.points:
                raise
            found.stopped = f"{ratio:.3g}x: {error}"
            break
        _add(found, result, step_name(number, ratio), folder)
    if folder is not None:
        write_frontier(found, folder, [])
    return found


def _with_ratio(options: Mapping[str, Any] | list[str], cost: str, ratio: float) -> Mapping[str, Any] | list[str]:
    """Options with how many times a cost has to fall."""
    if isinstance(options, Mapping):
        return merge(options, {"prune": {f"{cost}_ratio": ratio}})
    return [*options, f"prune.{cost}_ratio={ratio!r}"]


def _add(found: FrontierResult, result: Result, name: str, folder: Path | None) -> None:
    """Take in the result of one more step, and write it where there is a folder."""
    mistakes = {when: known for when, known in zip(("before", "after"), result.mistakes, strict=True) if known}
    if not found.points:
        found.points.append(first_point(result.summary, mistakes, ""))
    found.points.append(point_after(found.dense, found.points[-1], result.summary, mistakes, name))
    found.results.append(result)
    if folder is not None:
        result.save(folder / name)
        write_frontier(found, folder, [])


@dataclass(frozen=True)
class _Call:
    """What one call of ``prune`` was given, checked and completed."""

    settings: Settings
    model: nn.Module
    example_inputs: Any
    data: RunData
    loss_fn: Loss
    console: Console | None
    trackers: RunTrackers

    def run(self) -> Result:
        """One run on the model itself."""
        model, inputs = self.model, self.example_inputs
        runner = Runner(
            self.settings, model, inputs, self.data, self.loss_fn, console=self.console, trackers=self.trackers
        )
        if self.settings.runtime.time:
            dense = copy.deepcopy(model)
            runner.timer = make_timer(lambda: dense, inputs)
        summary = runner.run()
        mistakes = (runner.state.mistakes_before, runner.state.mistakes)
        return Result(model, runner.pruner.plan, summary, runner.journal.events, runner.settings, mistakes, inputs)

    def search(self) -> Result:
        """As many runs as ``prune.max_error_rise`` takes, on copies of the model, which becomes what they found."""
        settings, model, inputs = self.settings, self.model, self.example_inputs
        shown = self.console or Console(stderr=True)
        found = prune_within_error(settings, model, inputs, self.data, self.loss_fn, shown)
        group = TrackerGroup(self.trackers.own, self.trackers.lent, partial(warnings.warn, stacklevel=4))
        for event in found.events if is_main() else ():
            group.log(event)
        group.close()
        return Result(model, found.plan, found.summary, found.events, settings, found.mistakes, inputs)
