"""How much to cut: down to a target for some cost, along a ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rbprune.errors import OutOfReachError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import amount
from rbprune.methods.rounding import allowed_widths, keep_lowest, round_site
from rbprune.methods.settings import Target

WORTHLESS = 1e-3
"""A channel whose value is as near to the highest of all, as a part of their range, is not given back: it is dead."""
NEARLY = 0.995
"""A network that has this part of its target left is not given any channels back."""


def cut_to_target(graph: ChannelGraph, values: Mapping[str, Tensor], target: Target, least: float) -> dict[str, Tensor]:
    """Which channels go so that no more than the target is left: those of the highest values over all sites.

    As few as that needs. Every site keeps the share ``least`` of its channels, those of the lowest values, and at least
    one: a ranking that knows nothing of cost would else empty a cheap layer before the cost has fallen. Where the
    target has a ``step`` above 1, every site keeps a multiple of it or all of its channels (``rounding``). Where the
    last channel that went was a dear one, less than the target would be left: what still fits is spared again, the
    lowest values first. A branch is not held back.
    """
    ranking = _Ranking(graph, values, target, least)
    return ranking.spare_what_fits(ranking.cut(ranking.needed()))


def boundary(graph: ChannelGraph, values: Mapping[str, Tensor], target: Target, least: float) -> float:
    """The value above which channels go in ``cut_to_target``: that of the last one that goes, or the first that would.

    Neither widths that hardware likes nor what still fits count here: both are matters of single channels.

    >>> import torch
    >>> from rbprune import trace
    >>> from rbprune.graph.cost import MACS
    >>> graph = trace(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2)), torch.zeros(1, 2))
    >>> boundary(graph, {"0": torch.tensor([0.125, 0.5, 0.375, 0.25])}, Target(MACS, 8), least=0.1)
    0.375
    """
    ranking = _Ranking(graph, values, replace(target, step=1), least)
    return ranking.bound(ranking.needed())


class _Ranking:
    """The channels of several sites in the order in which they go."""

    def __init__(self, graph: ChannelGraph, values: Mapping[str, Tensor], target: Target, least: float) -> None:
        self.graph, self.target, self.least, self.step = graph, target, least, target.step
        self.limit = target.limit * (1 + 1e-9)  # what is just reached is reached
        self.values = {name: value.detach().cpu().double() for name, value in values.items()}
        spared = torch.cat([~keep_lowest(value, self.fewest(name)) for name, value in self.values.items()])
        self.flat = torch.cat(list(self.values.values()))
        ranked = self.flat.masked_fill(spared, -torch.inf).argsort(descending=True, stable=True)
        self.ranked = ranked[: int((~spared).sum())]
        self.dead = float(self.flat.max() - WORTHLESS * (self.flat.max() - self.flat.min()))

    def fewest(self, name: str) -> int:
        """How many channels a site keeps at least; a branch may go whole."""
        if not self.graph[name].keeps_one:
            return 0
        return max(1, math.ceil(len(self.values[name]) * self.least - 1e-9))

    def cut(self, number: int) -> dict[str, Tensor]:
        """The ``number`` highest go, at widths that are allowed."""
        flat = torch.zeros(len(self.flat), dtype=torch.bool)
        flat[self.ranked[:number]] = True
        gone = dict(zip(self.values, flat.split([len(value) for value in self.values.values()]), strict=True))
        if self.step == 1:
            return gone
        bound = self.bound(number)
        return {
            name: round_site(self.values[name], mask, self.step, least=self.fewest(name), bound=bound)
            for name, mask in gone.items()
        }

    def bound(self, number: int) -> float:
        """The value of the last channel that goes, or of the first that would."""
        return float(self.flat[self.ranked[number - 1]] if number else self.flat.max())

    def left(self, gone: Mapping[str, Tensor]) -> float:
        """What is left of the cost."""
        return self.target.cost.without(self.graph, {name: int(mask.sum()) for name, mask in gone.items()})

    def needed(self) -> int:
        """How many must go."""
        cost, low, high = self.target.cost, 0, len(self.ranked)
        if (reachable := self.left(self.cut(high))) > self.limit:
            ratio = math.floor(100 * cost.total(self.graph) / reachable) / 100
            rounded = "" if self.step == 1 else f", in multiples of {self.step} (prune.round_to)"
            closed = any(site.residual == "sum" and site.name not in self.values for site in self.graph.sites)
            sums = ", or let the residual sums lose channels too (prune.sums=true)" if closed else ""
            raise OutOfReachError(
                f"a network of {amount(cost, self.target.limit)} is out of reach: {cost.amount(reachable)} "
                f"({ratio:g}x fewer) are left when every layer that may be cut keeps {self.least:.0%} of its channels, "
                f"and at least one{rounded}; ask for less (prune.{cost.name}_ratio) or let layers keep less "
                f"(prune.least = {self.least:g}){sums}"
            )
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.left(self.cut(middle)) <= self.limit else (middle + 1, high)
        return low

    def spare_what_fits(self, gone: dict[str, Tensor]) -> dict[str, Tensor]:
        """Spare again the channels of the lowest values until the target is nearly what is left, where they still fit.

        Where a site is too dear once it stays so: sparing channels of others only makes its own dearer.
        """
        gone = {name: mask.clone() for name, mask in gone.items()}
        waiting = {name: found for name in gone if (found := self._next(name, gone[name])) is not None}
        while waiting and self.left(gone) < NEARLY * self.target.limit:
            name = min(waiting, key=lambda name: float(self.values[name][waiting[name]].mean()))
            channels = waiting.pop(name)
            gone[name][channels] = False
            if self.left(gone) > self.limit:
                gone[name][channels] = True
            elif (found := self._next(name, gone[name])) is not None:
                waiting[name] = found
        return gone

    def _next(self, name: str, gone: Tensor) -> Tensor | None:
        """The channels that a site would be given back first: as many as make the next width that is allowed."""
        kept = len(gone) - int(gone.sum())
        wider = next((w for w in allowed_widths(len(gone), self.step) if w > kept), None)
        if wider is None:
            return None
        places = gone.nonzero().flatten()
        first = places[self.values[name][places].argsort(stable=True)[: wider - kept]]
        return first if bool((self.values[name][first] < self.dead).any()) else None


def can_reach(graph: ChannelGraph, names: Sequence[str], target: Target, least: float) -> bool:
    """Whether these sites alone can lose so much that no more than the target is left."""
    try:
        equal_shares(graph, list(names), target, least)
    except OutOfReachError:
        return False
    return True


def equal_shares(graph: ChannelGraph, names: list[str], target: Target, least: float) -> dict[str, float]:
    """The same share of the channels of each site, so large that no more than the target is left."""
    ranks = {name: rank_within_site(torch.arange(graph[name].channels)) for name in names}
    gone = cut_to_target(graph, ranks, target, least)
    return {name: float(mask.double().mean()) for name, mask in gone.items()}


def rank_within_site(values: Tensor) -> Tensor:
    """Each value's rank in its own site, from just above 0 to 1: the same bound then cuts the same share everywhere.

    >>> rank_within_site(torch.tensor([5.0, -1.0, 7.0, 6.0]))
    tensor([0.5000, 0.2500, 1.0000, 0.7500], dtype=torch.float64)
    """
    order = values.argsort(stable=True)
    ranks = torch.empty(len(values), dtype=torch.float64)
    ranks[order] = torch.arange(1, len(values) + 1, dtype=torch.float64) / len(values)
    return ranks
