"""What a network would cost with only some of its channels kept: layer by layer, site by site, stage by stage.

A MAC is one multiply-accumulate of a convolution or linear layer; weights are those of the same layers, without
biases. Not counted: biases, normalisation, activations, pooling, element-wise operations. Nothing is cut for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import LayerCost
from rbprune.graph.layer_shares import layers_without


@dataclass(frozen=True)
class LayerCount:
    """One layer, or the total: what it costs with the channels that are kept, and how many times less that is."""

    name: str
    macs: int
    params: int
    macs_ratio: float
    params_ratio: float


@dataclass(frozen=True)
class SiteCount:
    """One site, and how many times fewer MACs the whole network has once this site and all before it are cut."""

    site: str
    channels: int
    kept: int
    macs_ratio: float
    conv_macs_ratio: float


@dataclass(frozen=True)
class StageCount:
    """The channels inside the residual blocks of one stage (such as ``layer1``) of a residual network.

    The ratios are those of the whole network once this stage and all before it are cut.
    """

    stage: str
    channels: int
    kept: int
    percent: float
    macs_ratio: float
    conv_macs_ratio: float


@dataclass(frozen=True)
class Count:
    """The result of ``count_kept`` and ``count_run``."""

    total: LayerCount
    conv_macs_ratio: float
    layers: list[LayerCount]
    accumulated: list[SiteCount]
    stages: list[StageCount]
    """Empty for a network without residual blocks."""

    def as_dict(self) -> dict[str, Any]:
        """All counts as plain values for JSON, with the figures of the total at the top."""
        total = {key: value for key, value in asdict(self.total).items() if key != "name"}
        rest = {key: value for key, value in asdict(self).items() if key != "total"}
        return {**total, **rest}


def parse_keep(text: str) -> list[int]:
    """Read the numbers of ``--keep``.

    >>> parse_keep("50-63-123")
    [50, 63, 123]
    """
    try:
        return [int(part) for part in text.split("-")]
    except ValueError as error:
        raise ConfigError(f"--keep takes channels left, such as 50-63-123; this is {text!r}") from error


def kept_widths(graph: ChannelGraph, keep: str) -> dict[str, int]:
    """Give the numbers of ``--keep`` to the sites that are open to pruning (no residual sums), front to back."""
    sites = [site for site in graph.sites if site.residual != "sum"]
    widths = parse_keep(keep)
    if len(widths) > len(sites):
        raise ConfigError(f"--keep has {len(widths)} numbers, but there are only {len(sites)} sites to prune")
    for width, site in zip(widths, sites, strict=False):
        if not 1 <= width <= site.channels:
            raise ConfigError(f"--keep asks for {width} channels of {site.name!r}, which has {site.channels}")
    return {site.name: width for width, site in zip(widths, sites, strict=False)}


def count_kept(graph: ChannelGraph, keep: str | None = None) -> Count:
    """Count the network as ``--keep`` would leave it, or as it is.

    >>> import torch
    >>> from rbprune import models, trace
    >>> count_kept(trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28)), "5-10-16").total.macs
    154720
    """
    return count_widths(graph, kept_widths(graph, keep) if keep else {})


def count_run(graph: ChannelGraph, channels: Mapping[str, Sequence[int]], blocks: Sequence[str] = ()) -> Count:
    """Count the network as a run left it: ``channels`` of its summary say for each site [before, after], ``blocks``
    are those whose branch it removed, with the sites inside."""
    for name, (before, after) in channels.items():
        if not (graph[name].channels == before and (0 if blocks else 1) <= after <= before):
            have = graph[name].channels
            raise ConfigError(f"site {name!r} has {have} channels; [{before}, {after}] is of another network")
    left = {site.name: channels[site.name][1] for site in graph.sites if site.name in channels}
    return count_widths(graph, dict.fromkeys(blocks, 0) | left)


def count_widths(graph: ChannelGraph, widths: Mapping[str, int]) -> Count:
    """Count the network with so many channels left of each site; sites that are not named keep all of theirs.

    Ratios accumulate in the order of ``widths``.
    """
    dense = now = graph.layers()
    removed: dict[str, int] = {}
    accumulated = []
    for name, width in widths.items():
        site = graph[name]
        removed[name] = site.channels - width
        now = layers_without(graph, removed)
        accumulated.append(SiteCount(name, site.original, width, *_ratios(dense, now)))
    layers = [_compare(d.name, [d], [n]) for d, n in zip(dense, now, strict=True)]
    total = _compare("total", dense, now)
    return Count(total, _ratios(dense, now)[1], layers, accumulated, _count_stages(graph, accumulated))


def stage_of(site: str) -> str:
    """Name the part of the network that a site belongs to: the first word of the site's name.

    >>> stage_of("layer1.0.conv2")
    'layer1'
    """
    return site.partition(".")[0]


def _count_stages(graph: ChannelGraph, accumulated: Sequence[SiteCount]) -> list[StageCount]:
    """Make a row for every stage with sites inside residual blocks; these are its channels.

    What is cut outside of blocks (the first convolution, say) counts in the ratios of the stage that follows.
    """
    counted = {count.site: count for count in accumulated}
    rows: dict[str, StageCount] = {}
    ratios = (1.0, 1.0)
    for site in graph.sites:
        count = counted.get(site.name)
        if count is not None:
            ratios = (count.macs_ratio, count.conv_macs_ratio)
        if site.residual == "inside":
            name = stage_of(site.name)
            before = rows.get(name)
            channels = site.original + (before.channels if before else 0)
            kept = (site.channels if count is None else count.kept) + (before.kept if before else 0)
            rows[name] = StageCount(name, channels, kept, 100 * kept / channels, *ratios)
    return list(rows.values())


def _compare(name: str, dense: Sequence[LayerCost], now: Sequence[LayerCost]) -> LayerCount:
    macs, params = sum(layer.macs for layer in now), sum(layer.params for layer in now)
    dense_macs, dense_params = sum(layer.macs for layer in dense), sum(layer.params for layer in dense)
    times = [whole / now if now else math.inf for whole, now in ((dense_macs, macs), (dense_params, params))]
    return LayerCount(name, macs, params, *times)


def _ratios(dense: Sequence[LayerCost], now: Sequence[LayerCost]) -> tuple[float, float]:
    """Dense / now, of all MACs and of those of convolutions."""
    conv, left = (sum(layer.macs for layer in layers if layer.kind == "conv") for layers in (dense, now))
    return sum(layer.macs for layer in dense) / sum(layer.macs for layer in now), conv / left if left else 1.0
