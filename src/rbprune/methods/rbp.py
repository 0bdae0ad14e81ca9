"""Recursive Bayesian Pruning, and its ablation and residual variant: Gaussian channel noise, Dirac-like prior."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rbprune.bayes import dirac
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.methods.gates import Law
from rbprune.methods.stage import GateStage, Settings, Verdict

MEMORY = 0.98
"""How much of the curvature's running mean a step leaves."""

UNDECIDED = (0.1, 0.9)
"""A rate in this range is near neither 0 nor 1."""


class DiracLaw(Law):
    """theta ~ N(1 - r, r (1 - r)) with one rate r per channel."""

    def __init__(self, channels: int, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((channels,), rate))
        self.curvature: Tensor
        self.looks: Tensor
        self.register_buffer("curvature", torch.zeros(channels))
        self.register_buffer("looks", torch.zeros(()))
        self.drawn: Tensor | None = None

    def draw(self, rows: int) -> Tensor:
        theta = dirac.sample(self.rate, torch.randn(rows, len(self.rate), device=self.rate.device))
        if theta.requires_grad:
            theta.retain_grad()
            self.drawn = theta
        return theta

    def mean(self) -> Tensor:
        return 1 - self.rate


class DiracStage(GateStage):
    """Rates are inferred by training; a channel goes when its rate is above the threshold (the paper: 0.5)."""

    diagnostic = "rate"
    law: DiracLaw

    def __init__(self, graph: ChannelGraph, names: list[str], settings: Settings, *, remember: bool = True) -> None:
        super().__init__(graph, names, settings, remember=remember)
        self.threshold = 0.5 if settings.threshold is None else settings.threshold
        if not 0 < self.threshold < 1:
            raise ConfigError(f"prune.threshold is a rate between 0 and 1; {self.threshold} is not")
        self.fixed_point = settings.rates == "fixed-point"
        if self.fixed_point and self.gates.per == "batch":
            raise ConfigError("prune.rates='fixed-point' looks at single examples: it needs prune.noise='example'")
        nats = [settings.price.of(graph, site) for site in self.sites]
        self.price = {site.name: (float(n.min()), float(n.max())) for site, n in zip(self.sites, nats, strict=True)}
        self.eps2 = dirac.eps2_from_nats(torch.cat(nats)).to(self.law.rate.device)

    def make_law(self, channels: int) -> DiracLaw:
        return DiracLaw(channels, self.settings.rate_init)

    @property
    def rates(self) -> dict[str, Tensor]:
        """The rates r of each site, as they are now."""
        return self.split(self.law.rate.detach())

    def penalty(self) -> Tensor:
        """sum_c KL(q(theta_c) || p(theta_c)) / N."""
        return dirac.kl(self.law.rate, self.eps2).sum() / self.settings.dataset_size

    def optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """Adam on the rates, or none where they go to their fixed point."""
        self._pull = lr
        return None if self.fixed_point else super().optimizer(lr)

    def after_backward(self) -> None:
        """The curvature A of the total loss in theta, by the squared gradients of single examples (Fisher)."""
        law = self.law
        if not self.fixed_point or law.drawn is None or law.drawn.grad is None:
            return
        gradient = law.drawn.grad * len(law.drawn)  # the loss is a mean over the batch
        law.curvature.lerp_(self.settings.dataset_size * gradient.square().mean(0), 1 - MEMORY)
        law.looks += 1
        law.drawn = law.rate.grad = None

    def after_step(self) -> None:
        """Go a part of the way to the fixed point, where asked to; keep the rates where their gradient is finite."""
        law = self.law
        if self.fixed_point and law.looks:
            with torch.no_grad():
                target = dirac.stationary_rate(law.curvature / (1 - MEMORY**law.looks), self.eps2)
                law.rate.lerp_(target, self._pull)
        dirac.clamp_(law.rate)

    def watched(self) -> Tensor:
        return self.law.rate.detach()

    def undecided(self) -> dict[str, float]:
        """For each site the share of rates that are near neither 0 nor 1."""
        low, high = UNDECIDED
        return {name: float(((r >= low) & (r <= high)).float().mean()) for name, r in self.rates.items()}

    def judge(self) -> dict[str, Verdict]:
        """r_c <- 1 if r_c > T, W_c <- W_c (1 - r_c): theta becomes its mean (paper, eq. threshold and scale)."""
        return {name: Verdict(rate, rate > self.threshold, 1 - rate) for name, rate in self.rates.items()}
