"""Residual blocks: what lies between a fork and the sum that closes it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx


@dataclass(frozen=True)
class Block:
    """A sum of two branches that come from one fork: the nodes between, the name, and whether it changes the shape.

    ``downsample`` says that the shortcut is anything but the identity; ``last`` is the module whose output is added to
    an identity, where there is one.
    """

    sum: fx.Node
    nodes: frozenset[fx.Node]
    name: str | None
    downsample: bool
    last: str | None = None


def find_blocks(graph: fx.Graph, sums: list[tuple[fx.Node, fx.Node, fx.Node]]) -> list[Block]:
    """One block per sum of two branches, smallest first, so that the first that holds a node is the innermost."""
    nodes = list(graph.nodes)
    order = {node: number for number, node in enumerate(nodes)}
    above: dict[fx.Node, int] = {}
    for node, number in order.items():
        mask = 1 << number
        for source in node.all_input_nodes:
            mask |= above[source]
        above[node] = mask
    blocks = []
    for total, left, right in sums:
        common = above[left] & above[right]
        if not common:
            continue
        fork = nodes[common.bit_length() - 1]
        between = (above[left] | above[right]) & ~above[fork]
        members = [n for n in nodes[order[fork] + 1 :] if between >> order[n] & 1 and above[n] >> order[fork] & 1]
        inside = [str(n.target) for n in members if n.op == "call_module"]
        name = _common_path(inside) if inside else None
        added = right if fork is left else left
        last = str(added.target) if fork in (left, right) and added.op == "call_module" else None
        blocks.append(Block(total, frozenset(members), name, fork not in (left, right), last))
    return sorted(blocks, key=lambda block: len(block.nodes))


def _common_path(names: list[str]) -> str:
    """The innermost module that holds all of them; the first of them where there is none.

    >>> _common_path(["layer1.0.conv1", "layer1.0.bn1"])
    'layer1.0'
    """
    common = []
    for parts in zip(*(name.split(".") for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common) or names[0]
