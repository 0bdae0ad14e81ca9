"""Which channels of a network belong together, and how to remove them exactly."""

from rbprune.graph.channels import ChannelGraph
from rbprune.graph.plan import Plan, apply_plan
from rbprune.graph.rules import register_rule
from rbprune.graph.sites import Site
from rbprune.graph.trace import trace

__all__ = ["ChannelGraph", "Plan", "Site", "apply_plan", "register_rule", "trace"]
