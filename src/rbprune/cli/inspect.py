"""``rbprune inspect``."""

from __future__ import annotations

from json import dumps

from rich.console import Console
from rich.table import Table

from rbprune.cli.options import Input, Json, traced


def inspect(model: str, *, input: Input = None, json: Json = False) -> None:
    """Show which channels of a network can be removed, together with what, and what they cost.

    Parameters
    ----------
    model
        A zoo name (lenet5, resnet56-cifar, torchvision:resnet50, ...), package.module:factory or path/file.py:factory.
    """
    graph = traced(model, input)
    total = graph.macs()
    rows = [
        {
            "site": site.name,
            "channels": site.channels,
            "producers": site.producers,
            "consumers": site.consumers,
            "residual": site.residual,
            "block": site.block,
            "downsample": site.downsample,
            "macs_per_channel": graph.macs_per_channel(site),
        }
        for site in graph.sites
    ]
    if json:
        frozen = {name: str(reason) for name, reason in graph.frozen.items()}
        print(dumps({"macs": total, "params": graph.params(), "sites": rows, "frozen": frozen}, indent=2))
        return
    table = Table(title=f"{model}: {total / 1e6:,.1f} M MACs, {graph.params() / 1e6:,.2f} M weights")
    for heading, justify in (("site", "left"), ("channels", "right"), ("consumers", "left"), ("residual", "left")):
        wrap = heading == "consumers"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=not wrap)  # type: ignore[arg-type]
    table.add_column("kMACs / channel", justify="right")
    table.add_column("share", justify="right")
    for site in graph.sites:
        per_channel = graph.macs_per_channel(site)
        more = f" +{len(site.consumers) - 2}" if len(site.consumers) > 2 else ""
        where = (site.residual or "") + (" (down)" if site.downsample else "")
        share = f"{100 * per_channel * site.channels / total:.1f} %"
        consumers = ", ".join(site.consumers[:2]) + more
        table.add_row(site.name, str(site.channels), consumers, where, f"{per_channel / 1e3:,.1f}", share)
    console = Console()
    console.print(table)
    for name, reason in graph.frozen.items():
        console.print(f"frozen: {name}: {reason}", markup=False, highlight=False, soft_wrap=True)
