"""How much to cut: down to a number of MACs, along a ranking."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph


def match_macs(graph: ChannelGraph, values: Mapping[str, Tensor], macs: float) -> dict[str, Tensor]:
    """Which channels go so that no more than ``macs`` are left: those of the highest values over all sites.

    As few as that needs; every site keeps its channel of the lowest value.
    """
    macs *= 1 + 1e-9  # what is just reached is reached
    names = list(values)
    sizes = [len(values[name]) for name in names]
    flat = torch.cat([values[name].detach().cpu().double() for name in names])
    spared = torch.cat([torch.arange(len(values[name])) == values[name].cpu().argmin() for name in names])
    ranked = flat.masked_fill(spared, -torch.inf).argsort(descending=True, stable=True)[: len(flat) - len(names)]

    def cut(number: int) -> dict[str, Tensor]:
        """The ``number`` highest."""
        gone = torch.zeros(len(flat), dtype=torch.bool)
        gone[ranked[:number]] = True
        return dict(zip(names, gone.split(sizes), strict=True))

    def left(number: int) -> float:
        return graph.macs_without({name: int(gone.sum()) for name, gone in cut(number).items()})

    if left(len(ranked)) > macs:
        raise ConfigError(
            f"a network of {macs / 1e6:.3g} M MACs is out of reach: {left(len(ranked)) / 1e6:.3g} M are left with one "
            "channel everywhere that may be cut; ask for less (prune.macs_ratio)"
        )
    low, high = 0, len(ranked)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if left(middle) <= macs else (middle + 1, high)
    return cut(low)


def share_for(graph: ChannelGraph, names: list[str], macs: float) -> dict[str, float]:
    """The same share of the channels of each site, so large that no more than ``macs`` are left."""
    ranks = {name: within(torch.arange(graph[name].channels)) for name in names}
    return {name: float(gone.double().mean()) for name, gone in match_macs(graph, ranks, macs).items()}


def within(values: Tensor) -> Tensor:
    """Each value's rank in its own site, from just above 0 to 1: the same bound then cuts the same share everywhere.

    >>> within(torch.tensor([5.0, -1.0, 7.0, 6.0]))
    tensor([0.5000, 0.2500, 1.0000, 0.7500], dtype=torch.float64)
    """
    order = values.argsort(stable=True)
    ranks = torch.empty(len(values), dtype=torch.float64)
    ranks[order] = torch.arange(1, len(values) + 1, dtype=torch.float64) / len(values)
    return ranks
