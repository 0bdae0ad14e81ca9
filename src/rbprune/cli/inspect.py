"""``rbprune inspect``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from rbprune.cli.options import Input, Json, traced
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import COSTS, MACS, Cost, find_cost, known_costs
from rbprune.logging.cost_totals import quantity
from rbprune.runs.channel_verdicts import judged_channels
from rbprune.runs.folder import RunFolder


def inspect(
    model: str | None = None,
    *,
    run: Annotated[
        Path | None, Parameter(help="a run folder: show what it decided about the channels of --site")
    ] = None,
    site: Annotated[str | None, Parameter(help="with --run: the site, by the name that inspect MODEL shows")] = None,
    input: Input = None,
    cost: Annotated[str, Parameter(help=f"what the table shows of each channel: {', '.join(COSTS)}")] = MACS.name,
    json: Json = False,
) -> None:
    """Show which channels of a network can be removed, together with what, and what they cost.

    With --run and --site it shows what a run decided about every channel of a site instead: evidence, price, saving and
    verdict, those that earn least of their price first.

    Parameters
    ----------
    model
        A zoo name (lenet5, resnet56-cifar, ...), torchvision:resnet50, timm:resnet18, package.module:factory or
        path/file.py:factory.
    """
    shown = find_cost(cost)
    if run is not None or site is not None:
        _show_verdicts(model, run, site, json)
        return
    if model is None:
        raise ConfigError("inspect needs a MODEL, such as lenet5, or --run DIR and --site NAME")
    graph = traced(model, input)
    if json:
        print(dumps(_as_dict(graph), indent=2))
        return
    console = Console()
    console.print(_table(graph, model, shown))
    for line in _branch_lines(graph, shown):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for name, reason in graph.frozen.items():
        console.print(f"frozen: {name}: {reason}", markup=False, highlight=False, soft_wrap=True)


def _show_verdicts(model: str | None, run: Path | None, site: str | None, json: bool) -> None:
    """What a run decided about the channels of a site."""
    if model is not None or run is None or site is None:
        raise ConfigError("to see why channels went, give --run DIR and --site NAME, and no MODEL")
    found = judged_channels(RunFolder(run), site)
    if json:
        print(dumps(found.to_dict(), indent=2))
    else:
        Console().print(found.table().rich_table())


def _branch_lines(graph: ChannelGraph, cost: Cost) -> list[str]:
    """The branches that can go whole, each with what it costs, and those that cannot, with the reason."""
    total, lines = cost.total(graph), []
    for name, branch in graph.branches.items():
        saved = cost.per_channel(graph, branch)
        lines.append(f"branch: {name}: {quantity(saved)} {cost.label}, {100 * saved / total:.1f} %")
    return lines + [f"branch stays: {name}: {reason}" for name, reason in graph.frozen_branches.items()]


def _as_dict(graph: ChannelGraph) -> dict[str, Any]:
    """Everything as plain values: every cost of the network, and of one channel of each site."""
    sites = [
        {
            "site": site.name,
            "channels": site.channels,
            "producers": site.producers,
            "consumers": site.consumers,
            "residual": site.residual,
            "block": site.block,
            "downsample": site.downsample,
            **{f"{name}_per_channel": cost.per_channel(graph, site) for name, cost in known_costs(graph).items()},
        }
        for site in graph.sites
    ]
    branches = [
        {
            "block": name,
            **{cost_name: cost.per_channel(graph, branch) for cost_name, cost in known_costs(graph).items()},
        }
        for name, branch in graph.branches.items()
    ]
    frozen = {name: str(reason) for name, reason in graph.frozen.items()}
    staying = {name: str(reason) for name, reason in graph.frozen_branches.items()}
    return {
        **{name: cost.total(graph) for name, cost in known_costs(graph).items()},
        "sites": sites,
        "branches": branches,
        "frozen": frozen,
        "frozen_branches": staying,
    }


def _table(graph: ChannelGraph, model: str, cost: Cost) -> Table:
    """The sites with what one channel costs, and the share of the network's cost that all channels of a site have."""
    totals = ", ".join(f"{quantity(each.total(graph))} {each.label}" for each in known_costs(graph).values())
    table = Table(title=f"{model}: {totals}")
    for heading, justify in (("site", "left"), ("channels", "right"), ("consumers", "left"), ("residual", "left")):
        wrap = heading == "consumers"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=not wrap)  # type: ignore[arg-type]
    table.add_column(f"{cost.label} / channel", justify="right")
    table.add_column("share", justify="right")
    total = cost.total(graph)
    for site in graph.sites:
        per_channel = cost.per_channel(graph, site)
        more = f" +{len(site.consumers) - 2}" if len(site.consumers) > 2 else ""
        where = (site.residual or "") + (" (down)" if site.downsample else "")
        share = f"{100 * per_channel * site.channels / total:.1f} %"
        consumers = ", ".join(site.consumers[:2]) + more
        table.add_row(site.name, str(site.channels), consumers, where, quantity(per_channel), share)
    return table
