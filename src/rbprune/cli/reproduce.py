"""``rbprune reproduce``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Json, Set, command, show
from rbprune.errors import ConfigError, FailedRunsError
from rbprune.report.plain_table import PlainTable
from rbprune.reproduce.estimate import DataNeeds, PhaseEstimate, estimate
from rbprune.reproduce.experiments import FIGURES, Experiment, find_experiment
from rbprune.reproduce.figures import draw, read_run
from rbprune.reproduce.page import ROUNDS, Reproduction, write_page
from rbprune.reproduce.run import reproduce as run
from rbprune.utils.names import distinct_names
from rbprune.utils.numbers import duration
from rbprune.utils.processes import is_main


def reproduce(
    table: str,
    *,
    out: Annotated[Path, Parameter(help="the folder of its runs: new, or the one to go on with")] = Path("runs/paper"),
    runs: Annotated[
        list[Path], Parameter(name="--run", negative=(), help="draw the figure from this run folder instead")
    ] = [],  # noqa: B006
    rounds: Annotated[int, Parameter(help="gpu: how often each network is timed")] = ROUNDS,
    dry_run: Annotated[bool, Parameter(negative=(), help="print the plan, its cost and the data it needs")] = False,
    set: Set = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Make a table or figure of the paper anew and print it beside the paper's own figures.

    Interrupted or called again, it goes on where it was. Runs are shared: figures use those of the tables.

    Parameters
    ----------
    table
        cifar10, vgg16-ilsvrc, resnet50-ilsvrc, gpu, or a figure: rates, channels, finetune.
    """
    experiment = find_experiment(table)
    if dry_run:
        _plan(experiment, set, json)
        return
    words = command()
    if runs:
        found = _from_runs(experiment, runs)
        out.mkdir(parents=True, exist_ok=True)
    else:
        found = run(experiment, out, set, console=Console(stderr=True), command=words, rounds=rounds)
    if not is_main():
        return
    page = write_page(found, out, shlex.join(words))
    if json:
        print(found.to_json())
    else:
        figures = [f"{figure.title}: {figure.note}" for figure in found.figures]
        show(found.tables, [*figures, *found.remarks, *found.notes], page)
    if found.notes:
        raise FailedRunsError(f"{len(found.notes)} of {len(experiment.runs)} runs failed; their notes say why")


def _from_runs(experiment: Experiment, folders: Sequence[Path]) -> Reproduction:
    if experiment.name not in FIGURES:
        raise ConfigError(f"--run is for figures ({', '.join(FIGURES)}); {experiment.name!r} is a table")
    runs = {name: read_run(path) for name, path in distinct_names(folders).items()}
    return Reproduction(experiment, figures=draw(experiment.name, runs))


def _plan(experiment: Experiment, overrides: Sequence[str], json: bool) -> None:
    costs, data = estimate(experiment, overrides)
    if json:
        print(dumps({"costs": [asdict(c) for c in costs], "data": [asdict(d) for d in data]}, indent=2))
        return
    console = Console()
    console.print(plan_table(experiment, costs).rich_table())
    for found in data:
        console.print(_tell(found), markup=False, highlight=False, soft_wrap=True)


def plan_table(experiment: Experiment, costs: Sequence[PhaseEstimate]) -> PlainTable:
    """What will be done, and what it costs at most."""
    if not costs:
        return PlainTable(experiment.title, ("run",), (("measured on the spot, a few minutes",),))
    rows = [(*_cells(cost), duration(cost.seconds)) for cost in costs]
    total = PhaseEstimate(
        "total", "", *(sum(getattr(c, key) for c in costs) for key in ("epochs", "steps", "macs", "seconds"))
    )
    rows.append((*_cells(total), duration(total.seconds)))
    columns = ("run", "phase", "dense epochs", "steps", "training MACs", "time here")
    note = (
        "At most: stages end when their rates settle, and the network shrinks (under a budget, into more steps). "
        "Time: from a few steps just made."
    )
    return PlainTable(experiment.title, columns, tuple(rows), names=2, note=note)


def _cells(cost: PhaseEstimate) -> tuple[str, ...]:
    return cost.run, cost.phase, f"{cost.epochs:.3g}", f"{cost.steps:,}", f"{cost.macs:.2e}"


def _tell(found: DataNeeds) -> str:
    return f"data {found.name}: {found.note}" if found.found else f"data {found.name} is missing: {found.note}"
