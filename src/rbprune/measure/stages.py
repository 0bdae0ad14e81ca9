"""Accounting of a residual network stage by stage, as in the paper's table of ResNet50."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rbprune.graph import ChannelGraph


@dataclass(frozen=True)
class Stage:
    """The channels inside the blocks of one stage, and the whole network's ratio once it and all before it are cut."""

    stage: str
    channels: int
    kept: int
    percent: float
    macs_ratio: float
    conv_macs_ratio: float


def stage_of(site: str) -> str:
    """The part of the network that a site belongs to: the first word of its name.

    >>> stage_of("layer1.0.conv2")
    'layer1'
    """
    return site.partition(".")[0]


def stage_rows(graph: ChannelGraph, ratios: Mapping[str, tuple[float, float]]) -> list[Stage]:
    """A row for every stage with sites inside residual blocks; these are its channels.

    ``ratios``: the network's (MACs, MACs of convolutions) once a site and all before it were cut. What is cut outside
    of blocks (the first convolution, say) counts in the ratio of the stage that follows.
    """
    rows: dict[str, Stage] = {}
    now = (1.0, 1.0)
    for site in graph.sites:
        now = ratios.get(site.name, now)
        if site.residual == "inside":
            name = stage_of(site.name)
            before = rows.get(name)
            channels = site.original + (before.channels if before else 0)
            kept = site.channels + (before.kept if before else 0)
            rows[name] = Stage(name, channels, kept, 100 * kept / channels, *now)
    return list(rows.values())
