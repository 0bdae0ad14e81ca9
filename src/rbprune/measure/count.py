"""Accounting of a network with some channels kept.

A MAC is one multiply-accumulate of a convolution or linear layer; weights are those of the same layers, without
biases. Not counted: biases, normalisation, activations, pooling, element-wise operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.measure.stages import Stage, stage_rows


@dataclass(frozen=True)
class Row:
    """One layer, or the total: what it costs now, and dense / now."""

    name: str
    macs: int
    params: int
    macs_ratio: float
    params_ratio: float


@dataclass(frozen=True)
class Step:
    """The whole network's ratio once this site and all before it are cut."""

    site: str
    channels: int
    kept: int
    macs_ratio: float
    conv_macs_ratio: float


@dataclass(frozen=True)
class Count:
    """The result of ``count_kept``."""

    total: Row
    conv_macs_ratio: float
    layers: list[Row]
    accumulated: list[Step]
    stages: list[Stage]
    """Of a residual network."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the total's figures at the top."""
        total = {key: value for key, value in asdict(self.total).items() if key != "name"}
        rest = {key: value for key, value in asdict(self).items() if key != "total"}
        return {**total, **rest}


def parse_keep(text: str) -> list[int]:
    """``50-63-123`` as numbers.

    >>> parse_keep("50-63-123")
    [50, 63, 123]
    """
    try:
        return [int(part) for part in text.split("-")]
    except ValueError as error:
        raise ConfigError(f"--keep takes channels left, such as 50-63-123; this is {text!r}") from error


def count_kept(graph: ChannelGraph, keep: str | None = None) -> Count:
    """Cut the sites that are open to pruning (not residual sums) to these widths, front to back, and count."""
    sites = [site for site in graph.sites if site.residual != "sum"]
    widths = parse_keep(keep) if keep else []
    if len(widths) > len(sites):
        raise ConfigError(f"--keep has {len(widths)} numbers, but there are only {len(sites)} sites to prune")
    for width, site in zip(widths, sites, strict=False):
        if not 1 <= width <= site.channels:
            raise ConfigError(f"--keep asks for {width} channels of {site.name!r}, which has {site.channels}")
    return _count(graph, {site.name: width for width, site in zip(widths, sites, strict=False)})


def count_run(graph: ChannelGraph, channels: Mapping[str, Sequence[int]]) -> Count:
    """The same for what is left after a run: ``channels`` of its summary, site -> [before, after]."""
    for name, (before, after) in channels.items():
        if not (graph[name].channels == before and 1 <= after <= before):
            have = graph[name].channels
            raise ConfigError(f"site {name!r} has {have} channels; [{before}, {after}] is of another network")
    return _count(graph, {site.name: channels[site.name][1] for site in graph.sites if site.name in channels})


def _count(graph: ChannelGraph, widths: Mapping[str, int]) -> Count:
    dense = graph.layers()
    accumulated = []
    for name, width in widths.items():
        site = graph[name]
        graph.remove({name: range(width, site.channels)})
        accumulated.append(Step(name, site.original, width, *_ratios(graph, dense)))
    stages = stage_rows(graph, {step.site: (step.macs_ratio, step.conv_macs_ratio) for step in accumulated})
    now = graph.layers()
    rows = [
        Row(n.name, n.macs, n.params, d.macs / n.macs, d.params / n.params) for d, n in zip(dense, now, strict=True)
    ]
    macs, params = graph.macs(), graph.params()
    total = Row("total", macs, params, sum(d.macs for d in dense) / macs, sum(d.params for d in dense) / params)
    return Count(total, _ratios(graph, dense)[1], rows, accumulated, stages)


def _ratios(graph: ChannelGraph, dense: list[Any]) -> tuple[float, float]:
    now = graph.layers()
    conv = [sum(layer.macs for layer in layers if layer.kind == "conv") for layers in (dense, now)]
    return sum(layer.macs for layer in dense) / graph.macs(), conv[0] / conv[1] if conv[1] else 1.0
