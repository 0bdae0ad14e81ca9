"""Which sites of a network a method does not judge, and why: the other side of the schedule."""

from __future__ import annotations

from rbprune.errors import UnprunableError
from rbprune.graph import ChannelGraph, Site
from rbprune.methods.branch_stage import schedule_stages
from rbprune.methods.registry import Method, find_method
from rbprune.methods.schedule import by_depth
from rbprune.methods.settings import PruningSettings


def sites_left_alone(graph: ChannelGraph, settings: PruningSettings) -> dict[str, str]:
    """The sites that no stage of the settings' method judges, each with the reason and what would open it."""
    refused = ""
    try:
        judged = {name for stage in schedule_stages(graph, settings) for name in stage}
    except UnprunableError as cause:
        judged, refused = set(), str(cause)
    wanted = None if settings.only is None else {graph[name].name for name in settings.only}
    method = find_method(settings.method)
    alone = [site for site in graph.sites if site.name not in judged]
    return {site.name: _why(graph, site, settings, method, wanted) or refused for site in alone}


def _why(graph: ChannelGraph, site: Site, settings: PruningSettings, method: Method, wanted: set[str] | None) -> str:
    """The first reason for which the schedule passes a site over, in the order in which it asks; nothing where it would
    judge it."""
    if method.branches == "only":
        return f"{method.name} judges whole branches of residual blocks and no channels"
    if site.residual == "sum" and not settings.prunes_sums:
        return "its channels pass through a residual sum, and sums are left alone; prune.sums=true opens them"
    if wanted is not None and site.name not in wanted:
        return "it is not among prune.only"
    if not method.reaches(graph, site):
        readers = ", ".join(map(repr, site.consumers)) or "nothing"
        return f"{method.name} judges what modules read, and this is read by {readers}; rbp and ibp judge functions too"
    if method.skip_downsampling and site.downsample:
        return f"{method.name} leaves blocks alone whose shortcut is no identity; prune.downsampling=true opens them"
    if method.schedule is by_depth and site.residual is None:
        return f"{method.name} judges only what lies in residual blocks; rbp and ibp judge this site too"
    return method.objection(graph, site) or ""
