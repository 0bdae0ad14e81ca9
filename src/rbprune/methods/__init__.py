"""Pruning methods: which sites when, how a channel is judged."""

from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.gate_stage import GateStage
from rbprune.methods.price import Price
from rbprune.methods.registry import METHODS, Method, find_method, register_method, schedule_sites
from rbprune.methods.settings import PruningSettings, StageContext
from rbprune.methods.stage import Stage
from rbprune.methods.verdict import StageResult, Verdict

__all__ = [
    "METHODS",
    "ChannelFactor",
    "GateStage",
    "Method",
    "Price",
    "PruningSettings",
    "Stage",
    "StageContext",
    "StageResult",
    "Verdict",
    "find_method",
    "register_method",
    "schedule_sites",
]
