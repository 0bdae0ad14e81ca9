"""``rbprune pick``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Json
from rbprune.graph.cost import COSTS
from rbprune.logging.cost_totals import quantity
from rbprune.runs.pick import Choice, copy_choice
from rbprune.runs.pick import pick as choose


def pick(
    folder: Path,
    *,
    max_error_rise: Annotated[float, Parameter(help="points that the validation error may be above the dense one's")],
    out: Annotated[Path | None, Parameter(help="copy the run folder of the network there; new or empty")] = None,
    json: Json = False,
) -> None:
    """Show the smallest network of a frontier that keeps the validation error, and copy it if asked to.

    Parameters
    ----------
    folder
        The folder of a frontier, finished or not.
    """
    choice = choose(folder, max_error_rise)
    if out is not None:
        copy_choice(choice, out)
    if json:
        print(dumps({**choice.to_dict(), "copied_to": None if out is None else str(out)}, indent=2))
        return
    for line in _lines(choice, out):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(choice: Choice, out: Path | None) -> list[str]:
    point = choice.point
    name = "the dense network: no smaller one is near enough" if choice.is_dense else str(choice.folder)
    costs = ", ".join(
        f"{quantity(point.costs[kind])} {COSTS[kind].label} ({ratio:.2f}x fewer)"
        for kind, ratio in point.ratios.items()
        if kind in COSTS
    )
    doubt = f"{choice.rise:+.2f} points" if choice.doubt is None else str(choice.doubt)
    told = [name, costs, f"validation error {point.val_error:.2f} %, against the dense network {doubt}"]
    told += [] if point.error is None else [f"test error {point.error:.2f} %"]
    return [*told, *([] if out is None else [f"copied to {out}"])]
