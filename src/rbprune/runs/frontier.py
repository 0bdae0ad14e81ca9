"""Error against cost: from a dense network to ever smaller ones, each a run that goes on from the one before it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from rbprune.errors import ConfigError, OutOfReachError
from rbprune.graph.cost import COSTS, MACS, find_cost
from rbprune.report.frontier import write_frontier_page
from rbprune.runs.folder import RunFolder
from rbprune.runs.point import PrunedPoint, first_point, point_after, read_mistakes, step_ratio
from rbprune.runs.series import claim, computing_like, dense_weights, run_once
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from rbprune.utils.files import write_atomic
from rbprune.utils.plain_file import read_table
from rbprune.utils.processes import is_main
from rbprune.utils.section import first_mistake

FACTOR = 1.5
"""How many times smaller each network is than the one before it, at most, where nobody says otherwise."""
FILE, PAGE = "frontier.json", "frontier.html"


def geometric_ratios(to: float, *, steps: int | None = None, factor: float | None = None) -> tuple[float, ...]:
    """The ratios of a frontier: from just above 1 to exactly ``to``, each as many times the one before it.

    ``steps`` says how many there are; otherwise as few as make each step at most ``factor`` (1.5 by default).

    >>> geometric_ratios(8, steps=3)
    (2.0, 4.0, 8.0)
    >>> [round(ratio, 2) for ratio in geometric_ratios(2, factor=1.3)]
    [1.26, 1.59, 2.0]
    """
    if steps is not None and factor is not None:
        raise ConfigError(f"--steps {steps} and --factor {factor:g} both say how large a step is: give one of them")
    factor = FACTOR if factor is None else factor
    if not (math.isfinite(to) and to > 1):
        raise ConfigError(f"--to is how many times smaller the last network shall be, above 1; {to:g} is not")
    if not (math.isfinite(factor) and factor > 1):
        raise ConfigError(f"--factor is how many times smaller each network is than the last, above 1; not {factor:g}")
    if steps is not None and steps < 1:
        raise ConfigError(f"--steps is how many networks there shall be; {steps} is none")
    count = math.ceil(math.log(to) / math.log(factor) - 1e-9) if steps is None else steps
    return tuple(float(f"{to ** (number / count):.6g}") for number in range(1, count + 1))


def step_name(number: int, ratio: float) -> str:
    """The name of the folder of a step, counted from 1.

    >>> step_name(1, 1.5)
    'step-01-1.5x'
    """
    return f"step-{number:02d}-{ratio:.3g}x"


@dataclass(frozen=True)
class FrontierRequest:
    """What is to be drawn: a recipe, and how many times smaller its network becomes in which cost."""

    recipe: str
    ratios: tuple[float, ...]
    overrides: tuple[str, ...] = ()
    cost: str = MACS.name

    def check(self) -> Settings:
        """Refuse every mistake that can be seen before anything runs; returns the settings of the recipe."""
        find_cost(self.cost)
        settings = load_recipe(self.recipe, self.overrides)
        prune = settings.prune
        if prune.ratio is not None:
            cost, ratio = prune.ratio
            raise ConfigError(
                f"a frontier decides by itself how much each step removes, and the settings ask for prune.{cost.name}"
                f"_ratio = {ratio:g}: leave it out (--set prune.{cost.name}_ratio=none), and say --to and --cost"
            )
        if prune.max_error_rise is not None:
            raise ConfigError(
                "a frontier goes down to --to, and the settings ask for prune.max_error_rise = "
                f"{prune.max_error_rise:g}: leave it out, and take 'rbprune pick DIR --max-error-rise' afterwards"
            )
        if settings.task != "prune":
            raise ConfigError(f"a frontier prunes, and the settings say task = {settings.task!r}: leave it out")
        return settings


@dataclass
class Frontier:
    """The dense network and the smaller ones that came of it, in the order of their size."""

    cost: str
    points: list[PrunedPoint] = field(default_factory=list)
    stopped: str | None = None
    """Why there is no smaller network, where the ratio that was asked for could not be reached."""

    @property
    def dense(self) -> PrunedPoint:
        """The network that all others come from."""
        return self.points[0]

    def to_dict(self) -> dict[str, Any]:
        """The content of ``frontier.json``; ``standard_error`` is that of the rise of the validation error."""
        rows = []
        for point in self.points:
            doubt = point.worse_than(self.dense)
            rows.append({**point.to_dict(), "standard_error": None if doubt is None else doubt.standard_error})
        return {"cost": self.cost, "points": rows, "stopped": self.stopped}


def frontier(request: FrontierRequest, folder: Path, *, console: Console, command: Sequence[str] = ()) -> Frontier:
    """Make what is missing of a frontier in ``folder``; interrupted at any moment, the same call goes on."""
    request.check()
    claim(folder, asdict(request), "frontier")
    found = Frontier(request.cost)
    words = list(command)
    for number, ratio in enumerate(request.ratios, 1):
        place = folder / step_name(number, ratio)
        try:
            summary = run_once(
                place,
                _settings_of_step(request, folder, found, ratio, console),
                title=f"{ratio:.3g}x fewer {find_cost(request.cost).label}",
                console=console,
                command=words,
            )
        except OutOfReachError as error:
            if not found.points:
                raise
            found.stopped = f"{ratio:.3g}x: {error}"
            console.print(found.stopped, markup=False, highlight=False, soft_wrap=True)
            break
        mistakes = RunFolder(place).read_mistakes()
        if not found.points:
            found.points.append(first_point(summary, mistakes, _dense_path(folder)))
        found.points.append(point_after(found.dense, found.points[-1], summary, mistakes, place.name))
        write_frontier(found, folder, words)
    write_frontier(found, folder, words)
    return found


def _settings_of_step(
    request: FrontierRequest, folder: Path, found: Frontier, ratio: float, console: Console
) -> Callable[[], Settings]:
    """The settings of the next run: from the network before it, down to so many times less than the dense one."""

    def settings() -> Settings:
        words = list(request.overrides)
        if found.points[1:]:
            before = RunFolder(folder / found.points[-1].path)
            words += [f"model.weights={before.weights_file}", f"model.plan={before.plan_file}"]
            ratio_now = step_ratio(found.dense, found.points[-1], COSTS[request.cost], ratio)
        else:
            title = "dense network"
            words += dense_weights(request.recipe, words, folder / "dense", title=title, console=console)
            ratio_now = ratio
        chosen = load_recipe(request.recipe, [*words, f"prune.{request.cost}_ratio={ratio_now!r}"])
        first = folder / found.points[1].path if found.points[1:] else folder
        return computing_like(chosen, RunFolder(first))

    return settings


def _dense_path(folder: Path) -> str:
    return "dense" if RunFolder(folder / "dense").is_run else ""


def write_frontier(found: Frontier, folder: Path, command: Sequence[str]) -> None:
    """What there is so far; of several processes one writes."""
    if is_main():
        write_atomic(folder / FILE, json.dumps(found.to_dict(), indent=2))
        write_frontier_page(folder / PAGE, found.to_dict(), folder.name, command)


def read_frontier(folder: Path) -> Frontier:
    """The frontier that lies in a folder, as far as it has come."""
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"{folder} holds no frontier (it has no {FILE}); give the --out of 'rbprune frontier'")
    try:
        found = TypeAdapter(Frontier).validate_python(read_table(path, ConfigError))
    except ValidationError as error:
        raise ConfigError(f"{path} is no frontier that can be read: {first_mistake(error)}; draw it anew") from error
    if (
        found.cost not in COSTS
        or not found.points
        or any(found.cost not in {*each.costs} & {*each.ratios} for each in found.points)
    ):
        raise ConfigError(f"{path} does not say what each of its networks costs in {found.cost!r}; draw it anew")
    for index, point in enumerate(found.points):
        place = found.points[min(max(1, index), len(found.points) - 1)].path
        if Path(place).name != place:
            raise ConfigError(f"{path} names {place!r}, which is no folder in {folder}; draw it anew")
        mistakes = read_mistakes(RunFolder(folder / place).read_mistakes(), "after" if index else "before")
        found.points[index] = replace(point, mistakes=mistakes)
    return found
