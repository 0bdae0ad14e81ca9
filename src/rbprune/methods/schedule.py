"""Which sites are inferred together, and in which order.

rbp    one site at a time, front to back: each layer knows what the earlier ones lost
ibp    every site at once (the ablation: no dependency between layers)
rrbp   for residual networks: the first convolutions of all blocks at once, then all second ones, ...;
       blocks with a down-sampling shortcut are left alone
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from rbprune.errors import ConfigError, UnprunableError, nearest
from rbprune.graph import ChannelGraph, Site


def rbp(sites: Sequence[Site]) -> list[list[Site]]:
    """Recursive: one stage per site."""
    return [[site] for site in sites]


def ibp(sites: Sequence[Site]) -> list[list[Site]]:
    """Independent: one stage for all sites."""
    return [list(sites)]


def rrbp(sites: Sequence[Site]) -> list[list[Site]]:
    """Residual: stage k holds the k-th site of every block that keeps its resolution and width."""
    depth: dict[str, int] = defaultdict(int)
    stages: dict[int, list[Site]] = defaultdict(list)
    for site in sites:
        if site.residual == "inside" and site.block is not None and not site.downsample:
            stages[depth[site.block]].append(site)
            depth[site.block] += 1
    return [stages[k] for k in sorted(stages)]


SCHEDULES: dict[str, Callable[[Sequence[Site]], list[list[Site]]]] = {"rbp": rbp, "rrbp": rrbp, "ibp": ibp}


def schedule(method: str, graph: ChannelGraph, only: Sequence[str] | None = None) -> list[list[str]]:
    """The names of the sites of each stage. The width of a residual sum is never pruned, as in the paper."""
    if method not in SCHEDULES:
        raise ConfigError(f"unknown method {method!r}{nearest(method, SCHEDULES)}; known are {', '.join(SCHEDULES)}")
    wanted = None if only is None else {graph[name].name for name in only}
    open_sites = [s for s in graph.sites if s.residual != "sum" and graph.hookable(s)]
    sites = [s for s in open_sites if wanted is None or s.name in wanted]
    stages = SCHEDULES[method](sites)
    if not stages:
        frozen = "; ".join(f"{name}: {reason}" for name, reason in list(graph.frozen.items())[:3])
        hint = "rrbp needs residual blocks, try method='rbp'" if method == "rrbp" else f"frozen are {frozen or 'none'}"
        raise UnprunableError(f"method {method!r} finds nothing to prune in this {type(graph.model).__name__}; {hint}")
    return [[site.name for site in stage] for stage in stages]
