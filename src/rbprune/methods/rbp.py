"""Recursive Bayesian Pruning, and its ablation and residual variant: Gaussian channel noise, Dirac-like prior."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rbprune.bayes import dirac
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.methods.channel_factor import Law
from rbprune.methods.price_search import Aim
from rbprune.methods.stage import GateStage, Settings, Verdict
from rbprune.utils import processes

MEMORY, EVERY = 0.95, 2
"""How much of the curvature's running mean a look leaves, and after how many steps there is one."""

UNDECIDED = (0.1, 0.9)
"""A rate in this range is near neither 0 nor 1."""


class DiracLaw(Law):
    """theta ~ N(1 - r, r (1 - r)) with one rate r per channel."""

    def __init__(self, channels: int, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((channels,), rate))
        self.curvature: Tensor
        self.looks: Tensor
        self.steps: Tensor
        self.register_buffer("curvature", torch.zeros(channels))
        self.register_buffer("looks", torch.zeros(()))
        self.register_buffer("steps", torch.zeros(()))
        self.drawn: Tensor | None = None

    def draw(self, rows: int) -> Tensor:
        theta = dirac.sample(self.rate, torch.randn(rows, len(self.rate), device=self.rate.device))
        if theta.requires_grad:
            self.drawn = theta
        return theta

    def mean(self) -> Tensor:
        return 1 - self.rate

    @property
    def looks_next(self) -> bool:
        """Whether there will be a look in the step that is about to begin."""
        return int(self.steps) % EVERY == 0


class DiracStage(GateStage):
    """Rates are inferred by training; a channel goes when its rate is above the threshold (the paper: 0.5)."""

    diagnostic = "rate"
    options = ("kl_weight",)
    law: DiracLaw

    def __init__(self, graph: ChannelGraph, names: list[str], settings: Settings, *, remember: bool = True) -> None:
        self.threshold = 0.5 if settings.threshold is None else settings.threshold
        if not 0 < self.threshold < 1:
            raise ConfigError(f"prune.threshold is a rate between 0 and 1; {self.threshold} is not")
        self.fixed_point = settings.rates == "fixed-point"
        if self.fixed_point and (settings.noise or self.per) == "batch":
            raise ConfigError("prune.rates='fixed-point' looks at single examples: it needs prune.noise='example'")
        super().__init__(graph, names, settings, remember=remember)
        self.kl_weight = settings.options.get("kl_weight", 1.0)
        self._outputs: Any = None
        self._seeing = graph.model.register_forward_hook(self._see) if self.fixed_point else None
        nats = torch.cat([settings.price.of(graph, site) for site in self.sites])
        self.given = dirac.eps2_from_nats(nats).to(self.law.rate.device)
        """eps^2 of the price as it was given."""
        self.aim: Aim | None = None
        if self.fixed_point and settings.macs is not None:
            later, looks = [graph[name] for name in settings.later], lambda: self.law.looks_next
            self.aim = Aim(graph, self.sites, later, settings.price, settings.macs, settings.least, looks)
            self.law.add_module("aim", self.aim.to(self.law.rate.device))

    @property
    def eps2(self) -> Tensor:
        """Of the price as it was given, or of so many times that as the MACs need."""
        return self.given if self.aim is None else self.given / self.aim.factor

    @property
    def finds_price(self) -> bool:
        return self.aim is not None

    @classmethod
    def aims(cls, rates: str) -> bool:
        return rates == "fixed-point"

    @classmethod
    def beside(cls, settings: Settings) -> float:
        """A look is at most a third of a step: one backward pass, to the noise and not to the weights."""
        return 1 / 3 / EVERY if settings.rates == "fixed-point" else 0.0

    def make_law(self, channels: int) -> DiracLaw:
        return DiracLaw(channels, self.settings.rate_init)

    @property
    def rates(self) -> dict[str, Tensor]:
        """The rates r of each site, as they are now."""
        return self.split(self.law.rate.detach())

    def penalty(self) -> Tensor:
        """sum_c KL(q(theta_c) || p(theta_c)) / N."""
        return self.kl_weight * dirac.kl(self.law.rate, self.eps2).sum() / self.settings.dataset_size

    def optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """Adam on the rates, or none where they go to their fixed point."""
        self._pull = lr
        return None if self.fixed_point else super().optimizer(lr)

    def param_groups(self, lr: float, rate_lr: float, **options: Any) -> list[dict[str, Any]]:
        """Groups for an optimizer of your own; the fixed point needs none for the rates and takes ``rate_lr`` as its
        part of the way.
        """
        self._pull = rate_lr
        groups = super().param_groups(lr, rate_lr, **options)
        return groups[:1] if self.fixed_point else groups

    def _see(self, module: nn.Module, args: Any, output: Any) -> None:
        # from the model itself: an engine for mixed precision may hand out a copy that refuses other backward passes
        self._outputs = output if module.training and torch.is_grad_enabled() else None

    def look(self) -> None:
        """Estimate the curvature A of the total loss in theta, now and then.

        For logits z with probabilities p the Gauss-Newton curvature is N E[J^T (diag p - p p^T) J], J = dz / dtheta. A
        random v with that covariance in the middle gives E[(J^T v)^2], one backward pass that stops at theta.
        """
        law, outputs, looks = self.law, self._outputs, self.law.looks_next
        self._outputs = None
        law.steps += 1
        if not self.fixed_point or outputs is None or law.drawn is None or not looks:
            return
        if not (isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1):
            raise ConfigError(
                "prune.rates='fixed-point' needs outputs of shape (examples, classes), and the model's are "
                f"{_describe(outputs)}; set prune.rates='adam'"
            )
        root = outputs.detach().float().softmax(1).sqrt()
        xi = torch.randn_like(root)
        direction = root * xi - root.square() * (root * xi).sum(1, keepdim=True)
        seen = [(law.drawn, law.curvature)]
        if self.aim is not None and self.aim.drawn is not None:
            seen.append((self.aim.drawn, self.aim.curvature))
        thetas = [theta for theta, _ in seen]
        slopes = torch.autograd.grad(outputs, thetas, direction.to(outputs.dtype), retain_graph=True)
        for slope, (_, curvature) in zip(slopes, seen, strict=True):
            # every process saw other examples, and all must come to the same rates
            square = processes.mean(slope.float().square().mean(0))
            curvature.lerp_(self.settings.dataset_size * square, 1 - MEMORY)
        law.looks += 1
        if self.aim is not None:
            self.aim.take(self._measured(law.curvature), self._measured(self.aim.curvature), int(law.looks))
        law.drawn = None

    def after_step(self) -> None:
        """Go a part of the way to the fixed point, where asked to; keep the rates where their gradient is finite."""
        law = self.law
        if self.fixed_point and law.looks:
            with torch.no_grad():
                target = dirac.stationary_rate(self._curvature(), self.eps2)
                law.rate.lerp_(target, self._pull)
            law.rate.grad = None
        dirac.clamp_(law.rate)

    def _curvature(self) -> Tensor:
        """Of the total loss in theta, for a divergence of weight 1: as measured, or as the rates tell it."""
        if self.fixed_point and self.law.looks:
            return self._measured(self.law.curvature)
        return dirac.resistance(self.law.rate.detach(), self.eps2)

    def _measured(self, running: Tensor) -> Tensor:
        return running / (1 - MEMORY**self.law.looks) / self.kl_weight

    def ahead(self) -> dict[str, Tensor]:
        return {name: rank for name, rank in self._ranks().items() if name in self.settings.later}

    def _ranks(self) -> dict[str, Tensor]:
        """What channels fail to earn of their price, 1 - A eps^2: of this stage and, where MACs decide, of later ones.

        Rates under different prices cannot be compared: a channel without any evidence ends at 1 - eps^2, lower in a
        cheap layer than in a dear one. The share of its price that a channel fails to earn can.
        """
        if self.aim is not None and self.law.looks:
            return self.aim.ranks(self._curvature(), self._measured(self.aim.curvature))
        return self.split((1 - self._curvature() * self.given).detach())

    def let_go(self) -> None:
        super().let_go()
        self._outputs = self.law.drawn = None
        if self.aim is not None and self.aim.gates is not None:
            self.aim.gates.detach()
        if self._seeing is not None:
            self._seeing.remove()

    def watched(self) -> Tensor:
        return self.law.rate.detach()

    def undecided(self) -> dict[str, float]:
        """For each site the share of rates that are near neither 0 nor 1."""
        low, high = UNDECIDED
        return {name: float(((r >= low) & (r <= high)).float().mean()) for name, r in self.rates.items()}

    def judge(self) -> dict[str, Verdict]:
        """r_c <- 1 if r_c > T, W_c <- W_c (1 - r_c): theta becomes its mean (paper, eq. threshold and scale)."""
        ranks, nats = self._ranks(), self.split(1 / (2 * self.eps2))
        self.price = {name: (float(n.min()), float(n.max())) for name, n in nats.items()}
        return {
            name: Verdict(rate, rate > self.threshold, 1 - rate, rank=ranks[name]) for name, rate in self.rates.items()
        }


def _describe(outputs: Any) -> str:
    return f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
