"""Recursive Bayesian Pruning, and its ablation and residual variant: Gaussian channel noise, Dirac-like prior.

Yuefu Zhou, Ya Zhang, Yanfeng Wang, Qi Tian: Accelerate CNN via Recursive Bayesian Pruning, ICCV 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.methods.channel_record import ChannelEvidence
from rbprune.methods.cost_target import can_reach
from rbprune.methods.cut import UNKNOWN, Forecast
from rbprune.methods.rate_stage import RateStage
from rbprune.methods.settings import StageContext
from rbprune.methods.verdict import Verdict

THRESHOLD = 0.5
"""The paper's T: a channel of a higher rate goes."""
NEAR = 0.1
"""A rate that is nearer to 0 or 1 is near it."""
FEW = 0.05
"""With this share of undecided channels, or one, a stage may end."""
SLOWEST = 0.1
"""The least part of its way to 0 or 1 that a decided rate goes in a step."""


class DiracStage(RateStage):
    """A channel goes when its rate is above the threshold (the paper: 0.5) and there is no doubt about it."""

    diagnostic = "rate"

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        given = context.settings.threshold
        self.threshold = THRESHOLD if given is None else given
        if not 0 < self.threshold < 1:
            raise ConfigError(f"prune.threshold is a rate between 0 and 1; {self.threshold} is not")
        super().__init__(graph, names, context, remember=remember)
        self.doubts = context.settings.confidence > 0
        """Whether a channel stays where there is doubt about it; else the threshold alone decides, as in the paper."""
        if self.doubts and self.fixed_point:
            self.few_undecided = max(1, int(FEW * len(self.factors.rate)))

    def rank_later_sites(self) -> dict[str, Tensor]:
        return {name: rank for name, rank in self._ranks().items() if name in self.context.later}

    def _ranks(self) -> dict[str, Tensor]:
        """What channels fail to earn of their price, 1 - A eps^2: of this stage and, under a target, of later ones.

        Rates under different prices cannot be compared: a channel without any evidence ends at 1 - eps^2, lower in a
        cheap layer than in a dear one. The share of its price that a channel fails to earn can.
        """
        if self.search is not None and self.factors.curvature.updates:
            return self.search.ranks(self._curvature(), self._of_whole_loss(self.search.curvature))
        return self.split((1 - self._curvature() * self.given).detach())

    def undecided(self) -> dict[str, float]:
        """For each site the share of channels that are undecided, or were when the decision fell."""
        doubt = self.factors.doubt if self.closing else self._doubt()
        return {name: float(mask.float().mean()) for name, mask in self.split(doubt).items()}

    def _doubt(self) -> Tensor:
        """Which channels are undecided: the evidence A / 2 is as near to the price as its error allows; where it is not
        estimated, the rate is near neither 0 nor 1."""
        if self.doubts and self.fixed_point and self.factors.curvature.updates:
            return self.factors.near(self.kl_weight / self.eps2, self.settings.confidence)
        rate = self.factors.rate.detach()
        return (rate >= NEAR) & (rate <= 1 - NEAR)

    @property
    def decided(self) -> bool:
        if not self.doubts or self.search is not None:
            return True  # the threshold asks for no more; a price that is found has channels near it, always
        return int(self._doubt().sum()) <= self.few_undecided

    @property
    def closing(self) -> bool:
        return self.factors.is_decided

    def close(self, steps: int) -> None:
        """Decide; from now on rates go to 1 for what goes and to 0 for what stays, 95 % of the way in ``steps``."""
        if self.closing or not self.fixed_point or not self.doubts:
            return
        _, gone = self.decide()
        flat = torch.cat([gone[name].to(self.factors.rate.device) for name in self.names])
        pace = max(SLOWEST, 1 - 0.05 ** (1 / max(1, steps)))
        self.factors.decide(flat, self._doubt(), pace, self._weigh())

    @property
    def closed(self) -> bool:
        noise = self.factors
        return not self.closing or float((noise.rate.detach() - noise.goal).abs().max()) < NEAR

    def decide(self) -> tuple[dict[str, Verdict], dict[str, Tensor]]:
        if not self.closing:
            return super().decide()
        return self.judge(), {name: goal > 0.5 for name, goal in self.split(self.factors.goal).items()}

    def judge(self) -> dict[str, Verdict]:
        """r_c <- 1 if r_c > T, W_c <- W_c (1 - r_c): theta becomes its mean (paper, eq. threshold and scale). A
        channel about which there is doubt stays."""
        ranks, nats = self._ranks(), self.split(1 / (2 * self.eps2))
        self.price = {name: (float(n.min()), float(n.max())) for name, n in nats.items()}
        self.evidence = self._evidence()
        sure = ~self._doubt() if self.doubts else torch.ones_like(self.factors.doubt)
        found = {}
        for (name, rate), certain in zip(self.rates.items(), self.split(sure).values(), strict=True):
            found[name] = Verdict(rate, (rate > self.threshold) & certain, 1 - rate, ranks[name], bound=0.0)
        return found

    def _weigh(self) -> Tensor:
        """For each channel the evidence A / 2, its standard error and the price 1 / (2 eps^2), in nats over all
        training data, as they are now. The error is nan where rates that Adam found only imply the evidence."""
        estimate, nats = self.factors.curvature, self._curvature() / 2
        known = self.fixed_point and estimate.updates > 0
        error = estimate.standard_error() / (2 * self.kl_weight) if known else torch.full_like(nats, torch.nan)
        return torch.stack([nats, error, 1 / (2 * self.eps2)]).detach()

    def _evidence(self) -> dict[str, ChannelEvidence]:
        """What each site is judged by: what is known now or, once it is decided, was known then."""
        weighed, doubt = (self.factors.weighed, self.factors.doubt) if self.closing else (self._weigh(), self._doubt())
        parts = [self.split(row.cpu().clone()) for row in (*weighed, doubt & self.doubts)]
        found = {}
        for name in self.names:
            nats, error, price, undecided = (part[name] for part in parts)
            found[name] = ChannelEvidence(nats, price, undecided, None if bool(error.isnan().any()) else error)
        return found

    def forecast(self, gone: dict[str, Tensor]) -> Forecast:
        """From the loss where the network is now, half way to the cut, and near to it: in a quadratic the rise r(t) on
        the way has r(1) = (32 r(7/8) - 14 r(1/2)) / 21, and of a third power that sees 15/16. Where nothing can be
        measured, from what training has shown."""
        if not self.fixed_point or not self.factors.curvature.updates:
            return UNKNOWN
        noise, model, check = self.factors, self.graph.model, self.context.check
        mask = torch.cat([gone[name].to(noise.rate.device) for name in self.names])
        change = noise.change(mask, compensated=self.settings.compensate == "factors")
        if check is None:
            return Forecast(noise.forecast(change, self.context.dataset_size))
        before = check.losses(model, batch_statistics=True)  # in evaluation theta is its mean, 1 - r
        rises = []
        for way in (1 / 2, 7 / 8):
            with noise.moved(change * way):
                rises.append(float((check.losses(model, batch_statistics=True) - before).mean()))
        half, near = rises
        return Forecast((32 * near - 14 * half) / 21, before, passes=3)

    def worth(self) -> dict[str, Tensor]:
        """For whole branches their price, under a ratio as it was before the noise; a channel's own evidence decides.

        A curvature does not reach as far as a whole branch: three branches of ResNet-20 with 29,000 nats of evidence
        cost more than 56,000. Where later stages cannot do without the branches there is no choice.
        """
        target, later = self.context.target, self.context.later
        if any(site.keeps_one for site in self.sites):
            return {}
        if target is not None and not (later and can_reach(self.graph, later, target, self.settings.least)):
            return {}
        factor = 1.0 if self.search is None else float(self.search.undisturbed)
        return self.split(factor * self.kl_weight / (2 * self.given * self.context.dataset_size))

    def compensating_factors(self, gone: dict[str, Tensor]) -> dict[str, Tensor]:
        mask = torch.cat([gone[name].to(self.factors.rate.device) for name in self.names])
        return self.split(self.factors.compensated_mean(mask) / self.factors.mean().detach())

    def first_ranks(self) -> dict[str, Tensor]:
        if not self.fixed_point or not self.factors.curvature.updates:
            return {}
        return self.split((1 - self.factors.first / self.kl_weight * self.given).detach())
