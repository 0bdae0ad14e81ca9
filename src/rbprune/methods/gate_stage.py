"""Stages of the methods that multiply trained factors on channels."""

from __future__ import annotations

from typing import ClassVar, Literal

from rbprune.graph import ChannelGraph
from rbprune.methods.channel_factor import ChannelFactor, Gates
from rbprune.methods.settings import StageContext
from rbprune.methods.stage import Stage


class GateStage(Stage):
    """Base of the methods that multiply trained factors on channels: they make them, and read them in ``judge``."""

    per: ClassVar[Literal["example", "batch"]] = "example"
    """Factors are drawn for each example, or once for a batch."""

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        device = next(graph.model.parameters()).device
        self.module = self.factors = self.make_factors(sum(site.channels for site in self.sites)).to(device)
        self.gates = Gates(graph, self.sites, self.factors, per=self.settings.noise or self.per)

    def trains_itself(self) -> bool:
        return False

    def make_factors(self, channels: int) -> ChannelFactor:
        """The factors of all channels of the stage, in the order of its sites."""
        raise NotImplementedError

    def detach(self) -> None:
        self.gates.detach()
