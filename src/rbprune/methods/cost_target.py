"""How much to cut: down to a target for some cost, along a ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rbprune.errors import OutOfReachError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import amount
from rbprune.methods.settings import Target


def cut_to_target(graph: ChannelGraph, values: Mapping[str, Tensor], target: Target, least: float) -> dict[str, Tensor]:
    """Which channels go so that no more than the target is left: those of the highest values over all sites.

    As few as that needs. Every site keeps the share ``least`` of its channels, those of the lowest values, and at least
    one: a ranking that knows nothing of cost would else empty a cheap layer before the cost has fallen.
    """
    cost, limit = target.cost, target.limit * (1 + 1e-9)  # what is just reached is reached
    names = list(values)
    sizes = [len(values[name]) for name in names]
    flat = torch.cat([values[name].detach().cpu().double() for name in names])
    spared = torch.cat([_lowest(values[name], least) for name in names])
    ranked = flat.masked_fill(spared, -torch.inf).argsort(descending=True, stable=True)[: int((~spared).sum())]

    def cut(number: int) -> dict[str, Tensor]:
        """The ``number`` highest."""
        gone = torch.zeros(len(flat), dtype=torch.bool)
        gone[ranked[:number]] = True
        return dict(zip(names, gone.split(sizes), strict=True))

    def left(number: int) -> float:
        return cost.without(graph, {name: int(gone.sum()) for name, gone in cut(number).items()})

    if (reachable := left(len(ranked))) > limit:
        ratio = math.floor(100 * cost.total(graph) / reachable) / 100
        raise OutOfReachError(
            f"a network of {amount(cost, limit)} is out of reach: {reachable / 1e6:.3g} M ({ratio:g}x fewer) are "
            f"left when every layer that may be cut keeps {least:.0%} of its channels, and at least one; ask for less "
            f"(prune.{cost.name}_ratio) or let layers keep less (prune.least = {least:g})"
        )
    low, high = 0, len(ranked)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if left(middle) <= limit else (middle + 1, high)
    return cut(low)


def boundary(graph: ChannelGraph, values: Mapping[str, Tensor], target: Target, least: float) -> float:
    """The value above which channels go in ``cut_to_target``: that of the last one that goes, or the first that would.

    >>> import torch
    >>> from rbprune import trace
    >>> from rbprune.graph.cost import MACS
    >>> graph = trace(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2)), torch.zeros(1, 2))
    >>> boundary(graph, {"0": torch.tensor([0.125, 0.5, 0.375, 0.25])}, Target(MACS, 8), least=0.1)
    0.375
    """
    gone = torch.cat(list(cut_to_target(graph, values, target, least).values()))
    flat = torch.cat([value.detach().cpu().double() for value in values.values()])
    return float(flat[gone].min() if bool(gone.any()) else flat.max())


def _lowest(values: Tensor, share: float) -> Tensor:
    """Where the lowest values are, a ``share`` of them and at least one."""
    number = max(1, math.ceil(len(values) * share - 1e-9))
    lowest = torch.zeros(len(values), dtype=torch.bool)
    lowest[values.detach().cpu().double().argsort(stable=True)[:number]] = True
    return lowest


def equal_shares(graph: ChannelGraph, names: list[str], target: Target, least: float) -> dict[str, float]:
    """The same share of the channels of each site, so large that no more than the target is left."""
    ranks = {name: rank_within_site(torch.arange(graph[name].channels)) for name in names}
    return {name: float(gone.double().mean()) for name, gone in cut_to_target(graph, ranks, target, least).items()}


def rank_within_site(values: Tensor) -> Tensor:
    """Each value's rank in its own site, from just above 0 to 1: the same bound then cuts the same share everywhere.

    >>> rank_within_site(torch.tensor([5.0, -1.0, 7.0, 6.0]))
    tensor([0.5000, 0.2500, 1.0000, 0.7500], dtype=torch.float64)
    """
    order = values.argsort(stable=True)
    ranks = torch.empty(len(values), dtype=torch.float64)
    ranks[order] = torch.arange(1, len(values) + 1, dtype=torch.float64) / len(values)
    return ranks
