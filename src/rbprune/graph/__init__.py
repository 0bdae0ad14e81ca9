"""Which channels of a network belong together, and how to remove them exactly."""

from rbprune.graph.channel_graph import ChannelGraph
from rbprune.graph.cutting.apply_plan import apply_plan
from rbprune.graph.cutting.plan import Plan
from rbprune.graph.rules import register_rule
from rbprune.graph.sites import Site
from rbprune.graph.tracing.trace import trace

__all__ = ["ChannelGraph", "Plan", "Site", "apply_plan", "register_rule", "trace"]
