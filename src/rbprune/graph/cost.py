"""What a network costs: a thing of its own, so that prices, targets, budgets and reports know no unit by name.

A cost answers three questions about the network as it is now: what all of it costs, what one channel of a site costs,
and what would be left without so many channels of each site. Multiply-accumulates and parameters are counted here; the
latency is looked up in a table that was measured on a device (``latency_table``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from rbprune.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rbprune.graph.channel_graph import ChannelGraph
    from rbprune.graph.latency_table import LatencyTable
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

    def amount(self, value: float) -> str:
        """A value with its unit, for messages, short."""


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
    share: Literal["weights", "macs"] = "weights"
    """What of a layer it falls with (``layer_shares.Share``)."""

    def total(self, graph: ChannelGraph) -> int:
        """The sum over all convolutions and linear layers."""
        return sum(self.of_layer(layer) for layer in graph.layers())

    def per_channel(self, graph: ChannelGraph, site: Site) -> float:
        """The filters that make the channel, the columns that read it, and what is computed for each channel alike."""
        costs = {layer.name: self.of_layer(layer) for layer in graph.layers()}
        return sum(
            (share * costs[owner] for owner, share in graph.channel_shares(site, of=self.share) if owner in costs), 0.0
        )

    def without(self, graph: ChannelGraph, counts: Mapping[str, int]) -> float:
        """Each layer in proportion to the inputs and the outputs that it would keep."""
        left = graph.remaining_shares(counts, of=self.share)
        return sum(self.of_layer(layer) * left.get(layer.name, 1.0) for layer in graph.layers())

    def amount(self, value: float) -> str:
        """Millions, without the label."""
        return f"{value / 1e6:.3g} M"


class LatencyCost:
    """Microseconds of a forward pass on a device, by the table that the graph was given.

    What one channel saves is the mean over the half of its site that would go first: a device computes channels in
    blocks, so that the next single channel may save nothing and the one after it a whole block.
    """

    name = "latency"
    label = "microseconds"

    def total(self, graph: ChannelGraph) -> float:
        """The latency that the table foretells for the network as it is."""
        return _table(graph).microseconds(graph, {})

    def per_channel(self, graph: ChannelGraph, site: Site) -> float:
        """What half of the site's channels would save, over their number, or a branch; never less than nothing."""
        half = max(1, site.channels // 2) if site.channels > 1 or not site.keeps_one else 0
        return max(0.0, (self.total(graph) - self.without(graph, {site.name: half})) / half) if half else 0.0

    def without(self, graph: ChannelGraph, counts: Mapping[str, int]) -> float:
        """The latency that the table foretells for the widths that would be left."""
        return _table(graph).microseconds(graph, counts)

    def amount(self, value: float) -> str:
        """In microseconds or milliseconds."""
        return f"{value:.3g} us" if value < 1000 else f"{value / 1000:.3g} ms"


def _table(graph: ChannelGraph) -> LatencyTable:
    if graph.latency is None:
        raise ConfigError(
            "latency is a cost only where it was measured, and there is no table of it: write one with "
            '`rbprune calibrate MODEL --out device.json` on the device, and name it as prune.latency = "device.json"'
        )
    return graph.latency


MACS = CountedCost("macs", "MACs", lambda layer: layer.macs, "macs")
"""Multiply-accumulates of convolutions and linear layers for one example."""
PARAMS = CountedCost("params", "parameters", lambda layer: layer.params)
"""Weights of convolutions and linear layers, without biases and normalisation, as the paper's tables count them."""

LATENCY = LatencyCost()
"""Microseconds of a forward pass, measured (``rbprune calibrate``)."""

COSTS: dict[str, Cost] = {cost.name: cost for cost in (MACS, PARAMS, LATENCY)}
"""Every cost that settings can name."""


def known_costs(graph: ChannelGraph) -> dict[str, Cost]:
    """Those costs that can be told of a network: all but the latency, and that too where the graph has a table of it.

    >>> import torch, rbprune
    >>> list(known_costs(rbprune.trace(torch.nn.Linear(2, 4), torch.zeros(1, 2))))
    ['macs', 'params']
    """
    return {name: cost for name, cost in COSTS.items() if cost is not LATENCY or graph.latency is not None}


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
    return cost.amount(value) if cost is LATENCY else f"{cost.amount(value)} {cost.label}"
