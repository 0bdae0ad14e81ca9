"""The smallest network within an error, as a run folder: its steps are runs of their own below it, each resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import CheckpointError
from rbprune.logging.journal import Journal
from rbprune.runs.build import make_runner
from rbprune.runs.dense_point import DENSE, dense_point
from rbprune.runs.error_search import SearchOutcome, search_within
from rbprune.runs.folder import RunFolder
from rbprune.runs.going_on import goes_on_after_restart
from rbprune.runs.point import PrunedPoint, check_validation_data, point_after, step_ratio
from rbprune.runs.resume import resume
from rbprune.runs.search_summary import StepRun, StepRuns, chain_events, summarise_search
from rbprune.runs.series import computing_like, run_once, training_only
from rbprune.runs.start import start
from rbprune.runs.step_settings import search_cost, searches, settings_of_recovery, settings_of_step
from rbprune.runs.trust import check_code, check_links, resume_with_trust, seal_code
from rbprune.settings.sections import Settings
from rbprune.train.runner import Runner
from rbprune.utils.files import write_atomic
from rbprune.utils.interrupt import Interrupted
from rbprune.utils.processes import is_first, is_main


def launch(
    settings: Settings, folder: Path, *, console: Console | None = None, command: Sequence[str] = ()
) -> dict[str, Any]:
    """Start a run in a new or empty folder and return its summary: one that prunes once or, with
    ``prune.max_error_rise``, one that searches for the smallest network within it. Where torchrun starts the same
    command anew because a process died, the run goes on."""
    words = list(command)
    if goes_on_after_restart(RunFolder(folder), words):
        return go_on(folder, console=console, command=words)
    if not searches(settings):
        return start(settings, folder, console=console, command=words)
    run = RunFolder(folder)
    run.check_empty(f"choose another --out, or go on with 'rbprune resume {folder}'")
    settings_of_step(settings, search_cost(settings), 1.5)  # what would be refused later
    return _search(settings, run, console, words)


def go_on(
    folder: Path, *, console: Console | None = None, command: Sequence[str] = (), trust: bool = False
) -> dict[str, Any]:
    """Go on with an interrupted run of either kind; a finished one is left as it is. ``trust``: see ``resume``."""
    run, words = RunFolder(folder), list(command)
    if not run.is_run or run.is_finished or not searches(run.read_settings()):
        return resume(folder, console=console, command=words, trust=trust)
    check_links(run, trust=trust)
    settings = run.read_settings()
    check_code(run, settings, trust=trust, remedy=resume_with_trust(run))
    if trust and is_first():
        seal_code(run, settings)
    return _search(settings, run, console, words, trust=trust)


def _search(
    settings: Settings, run: RunFolder, console: Console | None, command: list[str], *, trust: bool = False
) -> dict[str, Any]:
    steps = FolderSteps(settings, run, console or Console(stderr=True), command, trust=trust)
    try:
        found = search_within(steps, search_cost(settings), settings.prune.max_error_rise or 0.0)
    except Interrupted as stop:
        again = Interrupted(0, f"interrupted; go on with: rbprune resume {run}")
        again.exit_code = stop.exit_code
        raise again from stop
    return steps.finish(found)


class FolderSteps:
    """Makes the networks of a search, each by a run in a folder below that of the search."""

    def __init__(
        self, settings: Settings, run: RunFolder, console: Console, command: list[str], *, trust: bool = False
    ) -> None:
        self.settings, self.run, self.console, self.command = settings, run, console, command
        self.trust = trust
        """Whether code may run that only a folder below names."""
        self.cost = search_cost(settings)
        self.runs = StepRuns()
        self.first: PrunedPoint | None = None
        self.runner: Runner | None = None
        """Holds the dense network."""
        self.pretraining = self.seconds = 0.0
        """What training the dense network took, in epochs and in seconds."""

    def dense(self) -> PrunedPoint:
        """The dense network, trained first where the settings say so, and what it costs and gets wrong."""
        runner = make_runner(training_only(self.settings), self.run, self.console, self.command)
        check_validation_data(runner.data.val is not None, "prune.max_error_rise")
        self._begin(runner)
        if self.settings.model.weights is None:
            place = self._place(DENSE)
            training = training_only(self.settings)
            summary = self._once(place, lambda: training, "dense network")
            self.pretraining = summary["dense_epochs"]["pretrain"]
            self.seconds = summary["seconds"]
            model = self.settings.model.model_copy(update={"weights": str(place.weights_file)})
            self.settings = self.settings.model_copy(update={"model": model})
            runner = make_runner(training_only(self.settings), self.run, self.console, self.command)
        self.runner, self.first = runner, dense_point(runner)
        return self.first

    def _begin(self, runner: Runner) -> None:
        """Make the folder a run, once, with what only the data could tell of the network."""
        runner.engine.wait()
        if runner.engine.main and not self.run.is_run:
            self.run.begin(self.settings.model_copy(update={"model": runner.settings.model}))
            seal_code(self.run, self.settings)
        runner.engine.wait()

    def attempt(self, start: PrunedPoint, ratio: float, number: int) -> PrunedPoint:
        """A run from the network of another down to a ratio against the dense network."""
        assert self.first is not None
        name = f"{number:02d}-{ratio:.3g}x"
        own = step_ratio(self.first, start, self.cost, ratio)
        settings = settings_of_step(self._from(start), self.cost, own)
        return self._run(name, settings, start, f"{ratio:.3g}x fewer {self.cost.label}")

    def recover(self, best: PrunedPoint) -> PrunedPoint | None:
        """A run that only trains the network that was found."""
        decided = self._place(best.path).read_settings().finetune
        settings = settings_of_recovery(self._from(best), decided)
        return None if settings is None else self._run("recovery", settings, best, "recovery of the result")

    def _place(self, name: str) -> RunFolder:
        return RunFolder(self.run.steps / name)

    def _once(self, place: RunFolder, settings: Callable[[], Settings], title: str) -> dict[str, Any]:
        """The summary of a run below, which is made, gone on with, or there."""
        return run_once(place.path, settings, title=title, console=self.console, command=self.command, trust=self.trust)

    def _from(self, point: PrunedPoint) -> Settings:
        """The settings with the network of a point in the place of the dense one."""
        if point is self.first:
            return self.settings
        place = self._place(point.path)
        changes = {"weights": str(place.weights_file), "plan": str(place.plan_file)}
        return self.settings.model_copy(update={"model": self.settings.model.model_copy(update=changes)})

    def _run(self, name: str, settings: Settings, start: PrunedPoint, title: str) -> PrunedPoint:
        assert self.first is not None
        place = self._place(name)
        alike = self._place(next(iter(self.runs.runs), name))
        summary = self._once(place, lambda: computing_like(settings, alike), title)
        point = point_after(self.first, start, summary, place.read_mistakes(), name)
        return self.runs.add(StepRun(start, point, summary, place.read_events()))

    def finish(self, found: SearchOutcome) -> dict[str, Any]:
        """Write the result into the folder of the search, as any run does, and return the summary."""
        runner = self.runner
        assert runner is not None
        summary = summarise_search(found, self.runs, self.settings, self.cost, dataset_size=runner.dataset_size)
        summary["dense_epochs"]["pretrain"] += self.pretraining
        summary["seconds"] += self.seconds
        if is_main():
            self._write(found, runner, summary)
        runner.engine.wait()
        return summary

    def _write(self, found: SearchOutcome, runner: Runner, summary: dict[str, Any]) -> None:
        run, result = self.run, found.result
        if result is found.dense:
            run.write_network(runner.model, runner.pruner.plan)
        else:
            place = self._place(result.path)
            if not place.is_finished:
                raise CheckpointError(f"{place} was to hold the result of the search in {run}, and is not finished")
            write_atomic(run.weights_file, place.weights_file.read_bytes())
            write_atomic(run.plan_file, place.plan_file.read_bytes())
        mistakes = [None if each.mistakes is None else each.mistakes.to_dict() for each in (found.dense, result)]
        run.write_mistakes(*mistakes)
        journal = Journal(self.console, silent=True)
        journal.start(self.settings, self.command, runner.graph, runner.dataset_size)
        run.write_events(chain_events(self.runs.chain(result), journal.events[0], summary))
        run.finish(summary)
