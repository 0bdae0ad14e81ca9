"""The smallest network within an error, in memory: every step works on a copy, and the model is cut once at the end."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from torch import nn

from rbprune.graph import Plan, apply_plan, trace
from rbprune.logging.journal import Journal
from rbprune.pruner import Loss
from rbprune.runs.dense_point import DENSE, dense_point
from rbprune.runs.error_search import SearchOutcome, search_within
from rbprune.runs.point import PrunedPoint, check_validation_data, point_after, step_ratio
from rbprune.runs.search_summary import StepRun, StepRuns, chain_events, summarise_search
from rbprune.runs.series import training_only
from rbprune.runs.step_settings import search_cost, settings_of_recovery, settings_of_step
from rbprune.settings.sections import FinetuneSettings, Settings
from rbprune.train.runner import Runner
from rbprune.train.state import RunData
from rbprune.utils.state import load_state, state_tensors


@dataclass(frozen=True)
class MemoryResult:
    """What a search in memory came to; the model has been made the network that was found."""

    summary: dict[str, Any]
    events: list[dict[str, Any]]
    mistakes: tuple[dict[str, Any] | None, dict[str, Any] | None]
    """The validation examples that the dense network and the result get wrong."""
    plan: Plan
    """What has been removed from the model as it was built."""


class MemorySteps:
    """Makes the networks of a search, each from a copy of another."""

    def __init__(
        self, settings: Settings, model: nn.Module, example_inputs: Any, data: RunData, loss_fn: Loss, console: Console
    ) -> None:
        check_validation_data(data.val is not None, "prune.max_error_rise")
        self.settings, self.example_inputs, self.data, self.loss_fn = settings, example_inputs, data, loss_fn
        self.console, self.cost, self.runs = console, search_cost(settings), StepRuns()
        self.networks: dict[str, nn.Module] = {DENSE: model}
        self.plans: dict[str, Plan] = {}
        """What each step removed from the network that it started from."""
        self.decided: FinetuneSettings = settings.finetune
        self.first: PrunedPoint | None = None
        settings_of_step(settings, self.cost, 1.5)  # what would be refused later
        self.runner = self._runner(training_only(settings), model)
        """Holds the dense network."""

    def _runner(self, settings: Settings, model: nn.Module) -> Runner:
        return Runner(settings, model, self.example_inputs, self.data, self.loss_fn, console=self.console)

    def dense(self) -> PrunedPoint:
        """The model as it was given."""
        self.first = dense_point(self.runner)
        return self.first

    def attempt(self, start: PrunedPoint, ratio: float, number: int) -> PrunedPoint:
        """A run on a copy of another network, down to a ratio against the dense one."""
        assert self.first is not None
        own = step_ratio(self.first, start, self.cost, ratio)
        return self._run(f"{number:02d}-{ratio:.3g}x", settings_of_step(self.settings, self.cost, own), start)

    def recover(self, best: PrunedPoint) -> PrunedPoint | None:
        """A run that only trains a copy of the network that was found."""
        settings = settings_of_recovery(self.settings, self.decided)
        return None if settings is None else self._run("recovery", settings, best)

    def _run(self, name: str, settings: Settings, start: PrunedPoint) -> PrunedPoint:
        assert self.first is not None
        # of all networks only the dense one and the one that this step starts from are still needed
        self.networks = {path: model for path, model in self.networks.items() if path in (DENSE, start.path)}
        model = copy.deepcopy(self.networks[start.path])
        runner = self._runner(settings, model)
        summary = runner.run()
        if settings.task == "prune":
            self.decided = runner.settings.finetune
        self.networks[name], self.plans[name] = model, runner.graph.plan()
        mistakes = {} if runner.state.mistakes is None else {"after": runner.state.mistakes}
        point = point_after(self.first, start, summary, mistakes, name)
        return self.runs.add(StepRun(start, point, summary, runner.journal.events))

    def finish(self, found: SearchOutcome) -> MemoryResult:
        """Make the model that was given the network that was found."""
        model, result, chain = self.networks[DENSE], found.result, self.runs.chain(found.result)
        summary = summarise_search(found, self.runs, self.settings, self.cost, dataset_size=self.runner.dataset_size)
        journal = Journal(self.console, silent=True)
        journal.start(self.settings, [], self.runner.graph, self.runner.dataset_size)
        events = chain_events(chain, journal.events[0], summary)
        for run in chain:
            apply_plan(model, self.plans[run.point.path])
        if chain:
            load_state(model, state_tensors(self.networks[result.path]))
        mistakes = tuple(None if each.mistakes is None else each.mistakes.to_dict() for each in (found.dense, result))
        plan = trace(model, self.example_inputs).history().plan
        return MemoryResult(summary, events, (mistakes[0], mistakes[1]), plan)


def prune_within_error(
    settings: Settings, model: nn.Module, example_inputs: Any, data: RunData, loss_fn: Loss, console: Console
) -> MemoryResult:
    """Make a model as small as ``prune.max_error_rise`` allows, in place; until the end it is left as it was."""
    steps = MemorySteps(settings, model, example_inputs, data, loss_fn, console)
    return steps.finish(search_within(steps, steps.cost, settings.prune.max_error_rise or 0.0))
