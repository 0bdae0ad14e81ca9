"""``rbprune inspect``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from rbprune import models
from rbprune.cli.options import Input, Json, Set, sizes
from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import ChannelGraph, trace
from rbprune.graph.cost import COSTS, MACS, Cost, find_cost, known_costs
from rbprune.logging.cost_totals import quantity
from rbprune.methods import PruningSettings, find_method
from rbprune.methods.branch_stage import schedule_stages
from rbprune.methods.left_alone import sites_left_alone
from rbprune.runs.channel_verdicts import judged_channels
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import load_recipe, shipped
from rbprune.utils.numbers import DASH

SHARE = (
    "share: what all channels of a site cost, in the layers that make them and in those that read them, of the whole "
    "network. A layer between two sites counts in both, so shares may add up to more than 100 %."
)
STAGE = "stage: in which stage {method} judges the site; - where it leaves it alone, with the reason below."


def inspect(
    model: str | None = None,
    *,
    run: Annotated[
        Path | None, Parameter(help="a run folder: show what it decided about the channels of --site")
    ] = None,
    site: Annotated[str | None, Parameter(help="with --run: the site, by the name that inspect MODEL shows")] = None,
    input: Input = None,
    cost: Annotated[str, Parameter(help=f"what the table shows of each channel: {', '.join(COSTS)}")] = MACS.name,
    method: Annotated[
        str | None, Parameter(help="say what this method will prune; by default that of the recipe, or rbp")
    ] = None,
    set: Set = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Show which channels of a network can be removed, together with what, and what they cost.

    It also says in which stage the method at hand judges each site, and which sites it leaves alone and why.

    With --run and --site it shows what a run decided about every channel of a site instead: evidence, price, saving and
    verdict, those that earn least of their price first.

    Parameters
    ----------
    model
        A zoo name (lenet5, resnet56-cifar, ...), torchvision:resnet50, timm:resnet18, package.module:factory or
        path/file.py:factory; or a recipe (resnet56-cifar10, mine.toml): its network, under its settings of pruning.
    """
    shown = find_cost(cost)
    if run is not None or site is not None:
        _show_verdicts(model, run, site, json)
        return
    if model is None:
        raise ConfigError("inspect needs a MODEL, such as lenet5, or --run DIR and --site NAME")
    graph, settings = _traced(model, method, set, input)
    if json:
        print(dumps(_as_dict(graph, settings), indent=2))
        return
    console = Console()
    console.print(_table(graph, model, shown, settings))
    lines = [SHARE, STAGE.format(method=settings.method), *_method_lines(graph, settings), *_branch_lines(graph, shown)]
    lines += [f"frozen: {name}: {reason}" for name, reason in graph.frozen.items()]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _traced(
    name: str, method: str | None, overrides: list[str], shape: str | None
) -> tuple[ChannelGraph, PruningSettings]:
    """The channel graph of a model or of the model of a recipe, and the settings under which it is looked at."""
    given = [] if method is None else [f"prune.method={method}"]
    if name in shipped() or name.endswith(".toml"):
        recipe = load_recipe(name, [*given, *overrides])
        settings: PruningSettings = recipe.prune
        network = models.build(recipe.model.name, classes=recipe.model.classes)
        size = sizes(shape) or (None if recipe.model.input_shape is None else tuple(recipe.model.input_shape))
        example = models.example_input(recipe.model.name, network, size)
    else:
        if overrides:
            raise ConfigError(f"--set changes the settings of a recipe, and {name!r} is a model; give a recipe")
        settings = PruningSettings() if method is None else PruningSettings(method=method)
        network = models.build(name)
        example = models.example_input(name, network, sizes(shape))
    find_method(settings.method)
    return trace(network, example, keep=settings.keep), settings


def _stages(graph: ChannelGraph, settings: PruningSettings) -> dict[str, int]:
    """In which stage, counted from 1, each site or branch is judged."""
    try:
        stages = schedule_stages(graph, settings)
    except UnprunableError:
        return {}
    return {name: number for number, names in enumerate(stages, 1) for name in names}


def _method_lines(graph: ChannelGraph, settings: PruningSettings) -> list[str]:
    """What the method at hand will prune, and what it leaves alone; sites with one reason share a line."""
    stages, reasons = _stages(graph, settings), sites_left_alone(graph, settings)
    judged = [site for site in graph.sites if site.name in stages]
    channels = sum(site.channels for site in judged)
    last = max(stages.values(), default=0)
    many = f"{last} stage{'' if last == 1 else 's'}"
    lines = [f"{settings.method} judges {len(judged)} of {len(graph.sites)} sites ({channels} channels) in {many}"]
    for reason in dict.fromkeys(reasons.values()):
        lines.append(f"left alone: {', '.join(name for name in reasons if reasons[name] == reason)}: {reason}")
    return lines


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


def _as_dict(graph: ChannelGraph, settings: PruningSettings) -> dict[str, Any]:
    """Everything as plain values: every cost of the network, and of one channel of each site."""
    stages, reasons = _stages(graph, settings), sites_left_alone(graph, settings)
    sites = [
        {
            "site": site.name,
            "channels": site.channels,
            "producers": site.producers,
            "consumers": site.consumers,
            "residual": site.residual,
            "block": site.block,
            "downsample": site.downsample,
            "stage": stages.get(site.name),
            "left_alone": reasons.get(site.name),
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
        "method": settings.method,
        "sites": sites,
        "branches": branches,
        "frozen": frozen,
        "frozen_branches": staying,
    }


def _table(graph: ChannelGraph, model: str, cost: Cost, settings: PruningSettings) -> Table:
    """The sites with what one channel costs, and the share of the network's cost that all channels of a site have."""
    totals = ", ".join(f"{quantity(each.total(graph))} {each.label}" for each in known_costs(graph).values())
    table = Table(title=f"{model}: {totals}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("site", no_wrap=True)
    table.add_column("channels", justify="right", no_wrap=True)
    table.add_column("read by", overflow="fold")
    table.add_column("residual", no_wrap=True)
    for heading in (f"{cost.label} each", "share", "stage"):
        table.add_column(heading, justify="right", no_wrap=True)
    total, stages = cost.total(graph), _stages(graph, settings)
    for site in graph.sites:
        per_channel = cost.per_channel(graph, site)
        more = f" +{len(site.consumers) - 1}" if len(site.consumers) > 1 else ""
        where = (site.residual or "") + (" (down)" if site.downsample else "")
        share = f"{100 * per_channel * site.channels / total:.1f} %"
        consumers = ", ".join(site.consumers[:1]) + more
        stage = str(stages.get(site.name, DASH))
        table.add_row(site.name, str(site.channels), consumers, where, quantity(per_channel), share, stage)
    return table
