"""What a network costs: a thing of its own, so that prices, targets, budgets and reports know no unit by name.

A cost answers three questions about the network as it is now: what all of it costs, what one channel of a site costs,
and what would be left without so many channels of each site. Multiply-accumulates and parameters are counted here; a
cost that is measured (milliseconds on a device) only has to answer the same three questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rbprune.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rbprune.graph.channel_graph import ChannelGraph
    from rbprune.graph.sites import Site


@dataclass(frozen=True)
class LayerCost:
    """Multiply-accumulates for one example, and weights, of one convolution or linear layer."""

    name: str
    kind: str
    macs: int
    params: int


class Cost(Protocol):
    """What a network costs, in one unit."""

    @property
    def name(self) -> str:
        """The word for it in settings and files, such as ``macs``."""

    @property
    def label(self) -> str:
        """The word for it in sentences and tables, such as ``MACs``."""

    def total(self, graph: ChannelGraph) -> float:
        """The cost of the network as it is now."""

    def per_channel(self, graph: ChannelGraph, site: Site) -> float:
        """What disappears from the network as it is now with one channel of ``site``."""

    def without(self, graph: ChannelGraph, counts: Mapping[str, int]) -> float:
        """What would be left without so many channels of each site, whichever channels they are."""


@dataclass(frozen=True)
class CountedCost:
    """A cost that is a sum over layers and falls in proportion to the weights that a layer loses.

    >>> import torch, rbprune
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 3))
    >>> graph = rbprune.trace(net, torch.zeros(1, 2))
    >>> MACS.total(graph), MACS.per_channel(graph, graph["0"]), MACS.without(graph, {"0": 2})
    (20, 5.0, 10.0)
    """

    name: str
    label: str
    of_layer: Callable[[LayerCost], int]

    def total(self, graph: ChannelGraph) -> int:
        """The sum over all convolutions and linear layers."""
        return sum(self.of_layer(layer) for layer in graph.layers())

    def per_channel(self, graph: ChannelGraph, site: Site) -> float:
        """The filters that make the channel, and the columns that read it."""
        costs = {layer.name: self.of_layer(layer) for layer in graph.layers()}
        return sum((share * costs[owner] for owner, share in graph.channel_shares(site) if owner in costs), 0.0)

    def without(self, graph: ChannelGraph, counts: Mapping[str, int]) -> float:
        """Each layer in proportion to the inputs and the outputs that it would keep."""
        left = graph.remaining_shares(counts)
        return sum(self.of_layer(layer) * left.get(layer.name, 1.0) for layer in graph.layers())


MACS = CountedCost("macs", "MACs", lambda layer: layer.macs)
"""Multiply-accumulates of convolutions and linear layers for one example."""
PARAMS = CountedCost("params", "parameters", lambda layer: layer.params)
"""Weights of convolutions and linear layers, without biases and normalisation, as the paper's tables count them."""

COSTS: dict[str, Cost] = {cost.name: cost for cost in (MACS, PARAMS)}
"""Every cost that settings can name."""


def find_cost(name: str) -> Cost:
    """The cost of that name.

    >>> find_cost("params").label
    'parameters'
    """
    if name not in COSTS:
        raise ConfigError(f"unknown cost {name!r}{nearest(name, COSTS)}; known are {', '.join(COSTS)}")
    return COSTS[name]


def amount(cost: Cost, value: float) -> str:
    """A value with its unit, for messages.

    >>> amount(MACS, 2_345_678)
    '2.35 M MACs'
    """
    return f"{value / 1e6:.3g} M {cost.label}"
