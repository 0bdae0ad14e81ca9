"""What layers lose with channels and branches: shares of their weights, from the widths of the network as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rbprune.graph.branch import Branch
from rbprune.graph.cost import LayerCost
from rbprune.graph.sites import Role, Site

if TYPE_CHECKING:
    from rbprune.graph.channel_graph import ChannelGraph


def layers_of_branch(graph: ChannelGraph, branch: Branch) -> list[str]:
    """The convolutions and linear layers that go with a branch, by name."""
    return [layer.name for layer in graph.layers() if branch.removes(layer.name)]


def channels_within(graph: ChannelGraph, site: Site) -> int:
    """How many channels of the network one channel of ``site`` stands for: all that a branch makes, else itself."""
    if not isinstance(site, Branch):
        return 1
    made = (each for each in graph.sites if all(site.removes(name) for name in each.producers))
    return max(1, sum(each.channels for each in made))


def layers_without(graph: ChannelGraph, counts: Mapping[str, int]) -> list[LayerCost]:
    """What each layer would cost without so many channels of each site, whichever they are; exact, nothing is cut.

    A layer costs in proportion to the product of its axes, so cost' = cost * prod(width - removed) / prod(width).
    """
    removed: dict[tuple[str, Role], tuple[int, int]] = {}
    for name, count in counts.items():
        for part in graph[name].parts:
            key = (part.owner, part.role)
            if graph.has_weights(part):
                gone = removed.get(key, (0, 0))[0] + count * part.positions.shape[1]
                removed[key] = gone, graph.width(part)
    shares: dict[str, tuple[int, int]] = {}
    for (owner, _), (gone, width) in removed.items():
        left, whole = shares.get(owner, (1, 1))
        shares[owner] = left * (width - gone), whole * width
    shares |= dict.fromkeys(layers_of_branches(graph, counts), (0, 1))
    found = []
    for layer in graph.layers():
        left, whole = shares.get(layer.name, (1, 1))
        found.append(LayerCost(layer.name, layer.kind, layer.macs * left // whole, layer.params * left // whole))
    return found


def remaining_shares(graph: ChannelGraph, counts: Mapping[str, int]) -> dict[str, float]:
    """For each layer that would lose weights without so many channels of each site, the share that it keeps."""
    left: dict[tuple[str, Role], float] = {}
    for name, count in counts.items():
        for part in graph[name].parts:
            if graph.has_weights(part):
                key = (part.owner, part.role)
                left.setdefault(key, 1.0)
                left[key] -= count * part.positions.shape[1] / graph.width(part)
    shares: dict[str, float] = {}
    for (owner, _), share in left.items():
        shares[owner] = shares.get(owner, 1.0) * share
    return shares | dict.fromkeys(layers_of_branches(graph, counts), 0.0)


def channel_shares(graph: ChannelGraph, site: Site) -> Iterator[tuple[str, float]]:
    """Layers that hold weights of the site's channels, each with the share of its weights that one channel has.

    A layer that both reads and makes the channels (y + conv(y)) loses a row and a column, which share a weight.
    """
    shares: dict[str, float] = {}
    if isinstance(site, Branch):
        shares = dict.fromkeys(layers_of_branch(graph, site), 1.0)
    for part in site.parts:
        if graph.has_weights(part):
            share, other = part.positions.shape[1] / graph.width(part), shares.get(part.owner, 0.0)
            shares[part.owner] = share + other - share * other
    yield from shares.items()


def layers_of_branches(graph: ChannelGraph, counts: Mapping[str, int]) -> list[str]:
    """The layers that go with the branches among the sites."""
    gone = [graph.branches[name] for name, count in counts.items() if count and name in graph.branches]
    return [name for branch in gone for name in layers_of_branch(graph, branch)]
