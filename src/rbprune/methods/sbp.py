"""Structured Bayesian Pruning, and Bayesian model reduction on the same noise: truncated log-normal factors."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from rbprune.bayes import reduction
from rbprune.bayes import truncated_lognormal as tln
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.gate_stage import GateStage
from rbprune.methods.settings import StageContext
from rbprune.methods.verdict import Verdict

MOST_BITS = int(-tln.LOW / math.log(2))
"""The noise's range ends at exp(-20), so nothing lies below 2^-29."""
EVEN = 0.01
"""A change of evidence this small counts as none: a posterior that has become the prior never quite reaches 0, because
log sigma ends at 5."""


class TruncatedLogNormalNoise(ChannelFactor):
    """log theta ~ N(mu, sigma^2) restricted to [-20, 0]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.full((channels,), tln.MU_INIT))
        self.log_sigma = nn.Parameter(torch.full((channels,), tln.LOG_SIGMA_INIT))

    def draw(self, rows: int) -> Tensor:
        u = torch.rand(rows, len(self.mu), device=self.mu.device, dtype=torch.float64)
        return tln.sample(self.mu, self.log_sigma, u)

    def mean(self) -> Tensor:
        return tln.mean(self.mu, self.log_sigma)


class SBPStage(GateStage):
    """A channel goes when its signal-to-noise ratio is at most 1 (or the threshold); one draw per batch."""

    diagnostic = "minus log SNR"
    options: ClassVar[tuple[str, ...]] = ("kl_weight",)
    per: ClassVar[Literal["example", "batch"]] = "batch"
    factors: TruncatedLogNormalNoise

    def make_factors(self, channels: int) -> TruncatedLogNormalNoise:
        return TruncatedLogNormalNoise(channels)

    def penalty(self) -> Tensor:
        weight = self.settings.options.get("kl_weight", 1.0)
        return weight * tln.kl(self.factors.mu, self.factors.log_sigma).sum() / self.context.dataset_size

    def optimizer(self, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.factors.parameters(), lr=lr, betas=(0.95, 0.999))

    def clamp(self) -> None:
        tln.clamp_(self.factors.mu)
        tln.clamp_(self.factors.log_sigma)

    def judge(self) -> dict[str, Verdict]:
        threshold = 1.0 if self.settings.threshold is None else self.settings.threshold
        with torch.no_grad():
            snr = tln.snr(self.factors.mu.double(), self.factors.log_sigma.double())
            return self._verdicts(-snr.log(), snr <= threshold)

    def _verdicts(self, values: Tensor, redundant: Tensor) -> dict[str, Verdict]:
        parts = [self.split(t) for t in (values, redundant, self.factors.mean())]
        return {name: Verdict(*(part[name] for part in parts)) for name in self.names}


class BMRSStage(SBPStage):
    """A channel goes when the evidence does not fall with the prior that pins it near 0; one draw per example.

    ``bits`` (8) is the precision below which a factor counts as 0 (BMRS_U); ``normal=1`` takes the spike (BMRS_N).
    """

    diagnostic = "change of evidence"
    options = ("kl_weight", "bits", "normal")
    per = "example"

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        bits = context.settings.options.get("bits", reduction.BITS)
        if not 0 < bits <= MOST_BITS:
            raise ConfigError(f"prune.options.bits is a precision above 0 and up to {MOST_BITS} bits; {bits:g} is not")
        super().__init__(graph, names, context, remember=remember)

    def judge(self) -> dict[str, Verdict]:
        options, mu, log_sigma = self.settings.options, self.factors.mu.double(), self.factors.log_sigma.double()
        threshold = -EVEN if self.settings.threshold is None else self.settings.threshold
        with torch.no_grad():
            if options.get("normal"):
                gain = reduction.delta_f_normal(mu, log_sigma)
            else:
                gain = reduction.delta_f_uniform(mu, log_sigma, options.get("bits", reduction.BITS))
            return self._verdicts(gain, gain >= threshold)
