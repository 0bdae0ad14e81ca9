"""The stage of whole branches among the stages of a method, and what a removed branch leaves of later stages."""

from __future__ import annotations

from collections.abc import Sequence

from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.methods.registry import METHODS, find_method, schedule_sites
from rbprune.methods.settings import PruningSettings

BRANCHES_FIRST = True
"""Branches are judged before the channels: no stage is spent on channels of a branch that goes, and what the channels
that stay are worth is seen in the network that will exist."""


def schedule_stages(graph: ChannelGraph, settings: PruningSettings) -> list[list[str]]:
    """The names of the sites and branches of each stage."""
    method = find_method(settings.method)
    if settings.blocks and method.branches == "no":
        able = ", ".join(name for name, each in METHODS.items() if each.branches == "too")
        raise ConfigError(
            f"prune.blocks=true: method {method.name!r} does not judge whole branches; {able} do, and dds-blocks "
            "judges nothing else"
        )
    if method.branches == "only":
        return [judged_branches(graph, settings)]
    if not settings.blocks:
        return schedule_sites(graph, settings)
    branches = judged_branches(graph, settings)
    only_branches = settings.only is not None and all(name in graph.branches for name in settings.only)
    channels = [] if only_branches else schedule_sites(graph, settings)
    whole = [branches] if branches else []
    return whole + channels if BRANCHES_FIRST else channels + whole


def judged_branches(graph: ChannelGraph, settings: PruningSettings) -> list[str]:
    """The branches that can go exactly and take up a factor, by name; refused where there are none."""
    graph.check_branches()
    found = [
        name
        for name, branch in graph.branches.items()
        if branch.is_foldable and (settings.only is None or name in settings.only)
    ]
    if not found and settings.only is None:
        stays = "; ".join(f"{name}: {reason}" for name, reason in list(graph.frozen_branches.items())[:3])
        unfoldable = [name for name, branch in graph.branches.items() if not branch.is_foldable]
        why = stays or (f"no factor can be folded into {', '.join(unfoldable[:3])}" if unfoldable else "there are none")
        remedy = "try method='dds'" if settings.method == "dds-blocks" else "set prune.blocks=false"
        raise UnprunableError(
            f"{settings.method} finds no residual block whose shortcut is the identity and whose branch can go: {why}; "
            f"{remedy}"
        )
    return found


def still_there(graph: ChannelGraph, names: Sequence[str]) -> list[str]:
    """Those sites and branches that have not gone with a branch."""
    return [name for name in names if name in graph and (name in graph.branches or graph[name].consumers)]
