"""Residual blocks: what lies between a fork and the sum that closes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx, nn


@dataclass(frozen=True)
class Block:
    """A sum of two branches that come from one fork: the nodes between, the name, and whether it changes the shape.

    ``downsample`` says that the shortcut is anything but the identity; ``fork`` is where both branches begin. Where the
    shortcut is the identity, ``added`` is what is added to it, ``nodes`` are those of the branch alone, and
    ``shortcut`` those that hand it on (``nn.Identity``).
    """

    sum: fx.Node
    nodes: frozenset[fx.Node]
    name: str | None
    downsample: bool
    fork: fx.Node | None = None
    added: fx.Node | None = None
    shortcut: frozenset[fx.Node] = frozenset()


def find_blocks(
    graph: fx.Graph, sums: list[tuple[fx.Node, fx.Node, fx.Node]], modules: Mapping[str, nn.Module]
) -> list[Block]:
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
        plain = next((side for side in (right, left) if _hands_on(side, fork, modules) is not None), None)
        added = None if plain is None else left if plain is right else right
        between = (above[left] | above[right] if added is None else above[added]) & ~above[fork]
        members = [
            n for n in nodes[order[fork] + 1 : order[total]] if between >> order[n] & 1 and above[n] >> order[fork] & 1
        ]
        inside = [str(n.target) for n in members if n.op == "call_module"]
        name = _common_path(inside) if inside else None
        shortcut = () if plain is None else _hands_on(plain, fork, modules) or ()
        blocks.append(Block(total, frozenset(members), name, plain is None, fork, added, frozenset(shortcut)))
    return sorted(blocks, key=lambda block: len(block.nodes))


def _hands_on(node: fx.Node, fork: fx.Node, modules: Mapping[str, nn.Module]) -> list[fx.Node] | None:
    """The modules on the way from a fork to a node, if all of them hand on what they are given; else None."""
    passed = []
    while node is not fork:
        module = modules[str(node.target)] if node.op == "call_module" else None
        if type(module) is not nn.Identity or len(node.all_input_nodes) != 1:
            return None
        passed.append(node)
        node = node.all_input_nodes[0]
    return passed


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
