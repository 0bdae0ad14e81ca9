"""Pruning methods: which sites when, how a channel is judged."""

from rbprune.methods.price import Price
from rbprune.methods.schedule import SCHEDULES, schedule
from rbprune.methods.stage import Stage, StageResult

__all__ = ["SCHEDULES", "Price", "Stage", "StageResult", "schedule"]
