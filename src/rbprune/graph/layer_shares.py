"""What layers lose with channels and branches: shares of their weights, from the widths of the network as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from rbprune.graph.branch import Branch
from rbprune.graph.cost import LayerCost
from rbprune.graph.sites import Part, Role, Site, layer_at

if TYPE_CHECKING:
    from rbprune.graph.channel_graph import ChannelGraph


Share = Literal["weights", "macs"]
"""What a layer has in proportion to its inputs and outputs, and MACs also to the channels that it is applied to."""


def _layer_with(graph: ChannelGraph, part: Part, of: Share) -> str | None:
    """The layer that loses something with the channels of a part; None where no layer does."""
    return part.owner if graph.has_weights(part) else layer_at(part.owner) if of == "macs" else None


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
    weights, macs = _left_of_whole(graph, counts, "weights"), _left_of_whole(graph, counts, "macs")
    found = []
    for layer in graph.layers():
        (kept, all_weights), (left, whole) = weights.get(layer.name, (1, 1)), macs.get(layer.name, (1, 1))
        params = layer.params * kept // all_weights
        found.append(LayerCost(layer.name, layer.kind, layer.macs * left // whole, params))
    return found


def _left_of_whole(graph: ChannelGraph, counts: Mapping[str, int], of: Share) -> dict[str, tuple[int, int]]:
    """For each layer that would lose something what is left, and of how much."""
    removed: dict[tuple[str, str, Role], tuple[int, int]] = {}
    for name, count in counts.items():
        for part in graph[name].parts:
            layer = _layer_with(graph, part, of)
            if layer is not None:
                key = (layer, part.owner, part.role)
                gone = removed.get(key, (0, 0))[0] + count * part.positions.shape[1]
                removed[key] = gone, graph.width(part)
    shares: dict[str, tuple[int, int]] = {}
    for (layer, _, _), (gone, width) in removed.items():
        left, whole = shares.get(layer, (1, 1))
        shares[layer] = left * (width - gone), whole * width
    return shares | dict.fromkeys(layers_of_branches(graph, counts), (0, 1))


def remaining_shares(graph: ChannelGraph, counts: Mapping[str, int], of: Share = "weights") -> dict[str, float]:
    """For each layer that would lose something without so many channels of each site, the share that it keeps."""
    return {layer: left / whole for layer, (left, whole) in _left_of_whole(graph, counts, of).items()}


def channel_shares(graph: ChannelGraph, site: Site, of: Share = "weights") -> Iterator[tuple[str, float]]:
    """Layers that lose something with the site's channels, each with the share of it that one channel has.

    A layer that both reads and makes the channels (y + conv(y)) loses a row and a column, which share a weight.
    """
    shares: dict[str, float] = {}
    if isinstance(site, Branch):
        shares = dict.fromkeys(layers_of_branch(graph, site), 1.0)
    for part in site.parts:
        layer = _layer_with(graph, part, of)
        if layer is not None:
            share, other = part.positions.shape[1] / graph.width(part), shares.get(layer, 0.0)
            shares[layer] = share + other - share * other
    yield from shares.items()


def layers_of_branches(graph: ChannelGraph, counts: Mapping[str, int]) -> list[str]:
    """The layers that go with the branches among the sites."""
    gone = [graph.branches[name] for name, count in counts.items() if count and name in graph.branches]
    return [name for branch in gone for name in layers_of_branch(graph, branch)]
