"""Parameters and output that verbs share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from torch import Tensor, nn

from rbprune import models
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, trace
from rbprune.logging.console import summary_table
from rbprune.report.plain_table import PlainTable
from rbprune.runs.folder import RunFolder
from rbprune.train.outcome import rise
from rbprune.utils.processes import is_main

Set = Annotated[list[str], Parameter(name="--set", negative=(), help="change a setting: key=value; may be repeated")]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="print JSON and nothing else on standard output")]
Out = Annotated[Path, Parameter(name="--out", help="the run folder; must be new or empty")]
FailAbove = Annotated[
    float | None,
    Parameter(
        name="--fail-above", help="exit with code 3 if the error rose by more points than this (a loss: per cent)"
    ),
]
Trust = Annotated[
    bool,
    Parameter(name="--trust", negative=(), help="run the code that the folder names, though you did not start the run"),
]
FAILED = 3
"""The exit code of a run that is complete and not good enough."""
Input = Annotated[str | None, Parameter(name="--input", help="shape of one example, such as 3x224x224")]


def command() -> list[str]:
    """The command as it was given, for the report."""
    return ["rbprune", *sys.argv[1:]]


def show_summary(summary: dict[str, Any], folder: Path, as_json: bool, fail_above: float | None = None) -> None:
    """The end of a run, for people or for programs; of several processes one tells it.

    With ``fail_above`` the command ends with exit code 3 where the error rose by more points than that.
    """
    if is_main() and as_json:
        print(json.dumps(summary, indent=2))
    elif is_main():
        console = Console()
        summary_table(summary, console)
        console.print(f"report: {RunFolder(folder).report_file}", markup=False, highlight=False, soft_wrap=True)
    if fail_above is not None and _failed(summary, fail_above):
        sys.exit(FAILED)


def _failed(summary: dict[str, Any], most: float) -> bool:
    """Whether the error rose by more than so many points, or nobody knows."""
    known = summary["error_before"] is not None and summary["error_after"] is not None
    return not known or rise(summary)[0] > most


def show(tables: Iterable[PlainTable], lines: Iterable[str], page: Path) -> None:
    """The end of several runs: tables, what else there is to say, and where the page is."""
    console = Console()
    for table in tables:
        console.print(table.rich_table())
    for line in (*lines, f"page: {page}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def traced(name: str, shape: str | None) -> ChannelGraph:
    """The channel graph of a model that is named on the command line."""
    model = models.build(name)
    return trace(model, example(name, model, shape))


def example(name: str, model: nn.Module, shape: str | None) -> Tensor:
    """An input for it."""
    return models.example_input(name, model, sizes(shape))


def sizes(shape: str | None) -> tuple[int, ...] | None:
    """``--input`` as numbers.

    >>> sizes("3x224x224")
    (3, 224, 224)
    """
    if shape is None:
        return None
    try:
        return tuple(int(size) for size in shape.split("x"))
    except ValueError as error:
        raise ConfigError(f"--input is a shape such as 3x224x224; this is {shape!r}") from error
