"""Pruning methods: which sites when, how a channel is judged."""

from rbprune.methods.channel_factor import Law
from rbprune.methods.price import Price
from rbprune.methods.registry import METHODS, Method, find_method, register_method, schedule
from rbprune.methods.stage import GateStage, Settings, Stage, StageResult, Verdict

__all__ = [
    "METHODS",
    "GateStage",
    "Law",
    "Method",
    "Price",
    "Settings",
    "Stage",
    "StageResult",
    "Verdict",
    "find_method",
    "register_method",
    "schedule",
]
