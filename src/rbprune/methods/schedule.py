"""Which sites are judged together, and in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from rbprune.graph import Site

Schedule = Callable[[Sequence[Site]], list[list[Site]]]


def one_by_one(sites: Sequence[Site]) -> list[list[Site]]:
    """Recursive, front to back: each layer knows what the earlier ones lost."""
    return [[site] for site in sites]


def at_once(sites: Sequence[Site]) -> list[list[Site]]:
    """Independent: one stage for all sites."""
    return [list(sites)] if sites else []


def by_depth(sites: Sequence[Site]) -> list[list[Site]]:
    """Residual: stage k holds the k-th site of every block; the residual sums come last, in a stage of their own."""
    return [*insides_by_depth(sites), *sums_at_once(sites)]


def insides_by_depth(sites: Sequence[Site]) -> list[list[Site]]:
    """Stage k holds the k-th site of every residual block; there is none for anything else."""
    depth: dict[str, int] = defaultdict(int)
    stages: dict[int, list[Site]] = defaultdict(list)
    for site in sites:
        if site.residual == "inside" and site.block is not None:
            stages[depth[site.block]].append(site)
            depth[site.block] += 1
    return [stages[k] for k in sorted(stages)]


def sums_at_once(sites: Sequence[Site]) -> list[list[Site]]:
    """One stage for all residual sums, where there are any."""
    return at_once([site for site in sites if site.residual == "sum"])
