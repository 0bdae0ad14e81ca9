"""``rbprune frontier``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Json, Set, command, show
from rbprune.graph.cost import COSTS, MACS
from rbprune.report.frontier import frontier_table
from rbprune.runs.frontier import FACTOR, PAGE, FrontierRequest, geometric_ratios
from rbprune.runs.frontier import frontier as run
from rbprune.utils.processes import is_main


def frontier(
    recipe: str,
    *,
    to: Annotated[float, Parameter(help="how many times smaller the last network shall be")],
    out: Annotated[Path, Parameter(help="the folder of the frontier: new, or the one to go on with")],
    steps: Annotated[int | None, Parameter(help="how many networks there shall be")] = None,
    factor: Annotated[
        float | None, Parameter(help=f"how many times smaller each is than the last, at most; {FACTOR:g} by default")
    ] = None,
    cost: Annotated[str, Parameter(help=f"what falls: {', '.join(COSTS)}")] = MACS.name,
    set: Set = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Prune a network further and further, each time from the last result, and draw error against cost.

    Interrupted or called again, it goes on where it was and repeats nothing.

    Parameters
    ----------
    recipe
        A shipped recipe (such as lenet5-mnist) or a TOML file.
    """
    request = FrontierRequest(recipe, geometric_ratios(to, steps=steps, factor=factor), tuple(set), cost)
    found = run(request, out, console=Console(stderr=True), command=command())
    if not is_main():
        return
    if json:
        print(dumps(found.to_dict(), indent=2))
    else:
        notes = [] if found.stopped is None else [found.stopped]
        show([frontier_table(found.to_dict(), recipe)], notes, out / PAGE)
