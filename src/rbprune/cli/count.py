"""``rbprune count``."""

from __future__ import annotations

from json import dumps
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from rbprune.cli.options import Input, Json, traced
from rbprune.measure.count import Count, count_kept

Keep = Annotated[str | None, Parameter(name="--keep", help="channels left of the first sites, such as 50-63-123")]


def count(model: str, *, keep: Keep = None, input: Input = None, json: Json = False) -> None:
    """Count multiply-accumulates and weights, of the whole network or with only some channels kept.

    Counted are convolutions and linear layers: their MACs for one example, and their weights without biases.

    Parameters
    ----------
    model
        A zoo name (lenet5, resnet56-cifar, ...), torchvision:resnet50, timm:resnet18, package.module:factory or
        path/file.py:factory.
    """
    result = count_kept(traced(model, input), keep)
    if json:
        print(dumps(result.as_dict(), indent=2))
    else:
        _show(model, result)


def _show(model: str, result: Count) -> None:
    console = Console()
    table = Table(title=f"{model}: convolutions and linear layers, one example")
    for heading in ("layer", "MACs", "x", "weights", "x"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for row in [*result.layers, result.total]:
        style = "bold" if row is result.total else None
        macs, params = f"{row.macs_ratio:.2f}", f"{row.params_ratio:.2f}"
        table.add_row(row.name, f"{row.macs:,}", macs, f"{row.params:,}", params, style=style)
    console.print(table)
    if result.accumulated:
        table = Table(title="accumulating, site after site")
        for heading in ("site", "kept", "MACs x", "conv MACs x"):
            table.add_column(heading, justify="left" if heading == "site" else "right")
        for step in result.accumulated:
            left = f"{step.kept}/{step.channels}"
            table.add_row(step.site, left, f"{step.macs_ratio:.2f}", f"{step.conv_macs_ratio:.2f}")
        console.print(table)
    if result.accumulated and result.stages:
        table = Table(title="accumulating, stage after stage, inside blocks")
        for heading in ("stage", "kept", "%", "MACs x", "conv MACs x"):
            table.add_column(heading, justify="left" if heading == "stage" else "right")
        for stage in result.stages:
            left, percent = f"{stage.kept}/{stage.channels}", f"{stage.percent:.1f}"
            table.add_row(stage.stage, left, percent, f"{stage.macs_ratio:.2f}", f"{stage.conv_macs_ratio:.2f}")
        console.print(table)
