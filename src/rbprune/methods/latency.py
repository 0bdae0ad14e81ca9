"""Latency as a cost of pruning: the table of the settings is given to the network's graph."""

from __future__ import annotations

from rbprune.graph import ChannelGraph
from rbprune.graph.latency_table import LatencyTable
from rbprune.methods.settings import PruningSettings


def use_latency(graph: ChannelGraph, settings: PruningSettings) -> PruningSettings:
    """Read the table that ``prune.latency`` names, where it does, and give it to the graph.

    A table of another network is refused. Returns the settings, with the device's own step where ``round_to`` was left
    to it.
    """
    if settings.latency is None:
        return settings
    table = LatencyTable.load(settings.latency)
    table.check(graph, f"prune.latency = {settings.latency!r}")
    graph.latency = table
    return settings.model_copy(update={"round_to": table.step}) if settings.round_to == "device" else settings
