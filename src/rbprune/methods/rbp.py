"""Recursive Bayesian Pruning, and its ablation and residual variant: Gaussian channel noise, Dirac-like prior.

Yuefu Zhou, Ya Zhang, Yanfeng Wang, Qi Tian: Accelerate CNN via Recursive Bayesian Pruning, ICCV 2019.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rbprune.bayes import dirac
from rbprune.bayes.likelihood import Likelihood, Location, Softmax
from rbprune.errors import ConfigError, LoopError
from rbprune.graph import ChannelGraph
from rbprune.methods import curvature
from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.curvature import RunningCurvature, check_outputs, distance_from_softmax, squared_slopes
from rbprune.methods.price_search import PriceSearch
from rbprune.methods.settings import ADAM_RATE, PruningSettings, StageContext
from rbprune.methods.stage import GateStage
from rbprune.methods.verdict import Verdict

THRESHOLD = 0.5
"""The paper's T: a channel of a higher rate goes."""
UNDECIDED = (0.1, 0.9)
"""A rate in this range is near neither 0 nor 1."""


class DiracNoise(ChannelFactor):
    """theta ~ N(1 - r, r (1 - r)) with one rate r per channel."""

    def __init__(self, channels: int, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((channels,), rate))
        self.curvature = RunningCurvature(channels)
        self.passes = 0
        """Training steps so far in which the curvature might have been updated."""
        self.drawn: Tensor | None = None

    def draw(self, rows: int) -> Tensor:
        theta = dirac.sample(self.rate, torch.randn(rows, len(self.rate), device=self.rate.device))
        if theta.requires_grad:
            self.drawn = theta
        return theta

    def mean(self) -> Tensor:
        return 1 - self.rate

    def update_is_due(self) -> bool:
        """Whether the curvature will be updated in the step that is about to begin."""
        return self.passes % curvature.EVERY == 0

    def get_extra_state(self) -> Tensor:
        """The number of passes, kept out of the device's memory: a step must not wait for it."""
        return torch.tensor(self.passes)

    def set_extra_state(self, state: Tensor) -> None:
        """Take up what ``get_extra_state`` gave."""
        self.passes = int(state)


class DiracStage(GateStage):
    """Rates are inferred by training; a channel goes when its rate is above the threshold (the paper: 0.5)."""

    diagnostic = "rate"
    options = ("kl_weight",)
    infers_rates = True
    factors: DiracNoise

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        settings = context.settings
        self.threshold = THRESHOLD if settings.threshold is None else settings.threshold
        if not 0 < self.threshold < 1:
            raise ConfigError(f"prune.threshold is a rate between 0 and 1; {self.threshold} is not")
        self.fixed_point = settings.rates != "adam"
        if self.fixed_point and (settings.noise or self.per) == "batch":
            raise ConfigError("prune.rates='fixed-point' looks at single examples: it needs prune.noise='example'")
        super().__init__(graph, names, context, remember=remember)
        self.kl_weight = settings.options.get("kl_weight", 1.0)
        self.step_size = settings.step_size
        self._outputs: Any = None
        self._softmax_distance: Tensor | None = None
        self.likelihood: Likelihood = Softmax() if context.likelihood is None else context.likelihood
        self._loss_per_nat = 1.0
        self._output_hook = graph.model.register_forward_hook(self._keep_outputs) if self.fixed_point else None
        nats = torch.cat([context.prices.of(graph, site) for site in self.sites])
        self.given = dirac.eps2_from_nats(nats).to(self.factors.rate.device)
        """eps^2 of the price as it was given."""
        self.search: PriceSearch | None = None
        if self.fixed_point and context.target is not None:
            later, due = [graph[name] for name in context.later], self.factors.update_is_due
            search = PriceSearch(graph, self.sites, later, context.prices, context.target, settings.least, due)
            self.search = search.to(self.factors.rate.device)
            self.factors.add_module("search", self.search)

    @property
    def eps2(self) -> Tensor:
        """eps^2 of the price as it was given, or of so many times that as the target needs."""
        return self.given if self.search is None else self.given / self.search.price_factor

    @property
    def finds_price(self) -> bool:
        return self.search is not None

    @classmethod
    def can_target(cls, settings: PruningSettings) -> bool:
        return settings.rates != "adam"

    @classmethod
    def step_overhead(cls, settings: PruningSettings) -> float:
        """What the curvature takes; twice as much where only the loss's second derivative is known ("auto")."""
        return {"adam": 0.0, "fixed-point": curvature.OVERHEAD, "auto": 2 * curvature.OVERHEAD}[settings.rates]

    def make_factors(self, channels: int) -> DiracNoise:
        return DiracNoise(channels, self.settings.rate_init)

    def trains_itself(self) -> bool:
        return self.fixed_point

    @property
    def rates(self) -> dict[str, Tensor]:
        """The rates r of each site, as they are now."""
        return self.split(self.factors.rate.detach())

    def penalty(self) -> Tensor:
        """sum_c KL(q(theta_c) || p(theta_c)) / N, in units of the loss."""
        nats = self.kl_weight * dirac.kl(self.factors.rate, self.eps2).sum() / self.context.dataset_size
        return nats if self._loss_per_nat == 1.0 else self._loss_per_nat * nats

    def optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """Adam on the rates, or none where they go to their fixed point; where that is not sure yet, Adam waits."""
        self.step_size = lr
        if self.settings.rates == "fixed-point":
            return None
        waits = self.settings.rates == "auto" and self.settings.rate_lr is None
        return super().optimizer(ADAM_RATE if waits else lr)

    def param_groups(self, lr: float, rate_lr: float | None = None, **options: Any) -> list[dict[str, Any]]:
        """Groups for an optimizer of your own; on the way to their fixed point the rates take no step of it, and
        ``rate_lr`` is the share of the way that they go in each step."""
        self.step_size = self.settings.step_size if rate_lr is None else rate_lr
        return super().param_groups(lr, rate_lr, **options)

    def _keep_outputs(self, module: nn.Module, args: Any, output: Any) -> None:
        # from the model itself: an engine for mixed precision may hand out a copy that refuses other backward passes
        self._outputs = output if module.training and torch.is_grad_enabled() else None

    def update_curvature(self, targets: Any) -> None:
        """Estimate the curvature A of the total loss in theta, every second step (see ``curvature``)."""
        noise, outputs = self.factors, self._outputs
        self._outputs = None
        if outputs is None:
            return
        due, noise.passes = noise.update_is_due(), noise.passes + 1
        if not self.fixed_point or not due or noise.drawn is None:
            return
        if noise.passes == 1:
            self._check_loss(outputs, targets)
        seen = [(noise.drawn, noise.curvature)]
        if self.search is not None and self.search.drawn is not None:
            seen.append((self.search.drawn, self.search.curvature))
        squares = squared_slopes(self.likelihood, outputs, targets, [theta for theta, _ in seen])
        noise.drawn = None
        if squares is None:
            self._give_up_fixed_point("the loss has no second derivative in the model's outputs")
            return
        for square, (_, estimate) in zip(squares, seen, strict=True):
            estimate.update(square, self.context.dataset_size)
        if isinstance(self.likelihood, Location):
            self._loss_per_nat = self.likelihood.loss_per_nat(outputs)
        if self.search is not None:
            later = self._of_whole_loss(self.search.curvature)
            self.search.update(self._of_whole_loss(noise.curvature), later, noise.curvature.updates)
        if noise.passes == 1 and self.context.likelihood is None:
            outputs.register_hook(self._note_gradient)

    def _check_loss(self, outputs: Any, targets: Any) -> None:
        """Refuse, once in a stage, what could not be right: outputs that do not fit the loss, missing targets."""
        check_outputs(self.likelihood, outputs)
        if targets is None and self.context.likelihood is not None and self.likelihood != Softmax():
            self.abandon()
            raise LoopError(
                "this loss_fn counts outputs by their targets: write loss_fn(outputs, targets) + stage.kl(targets) in "
                "every step"
            )

    def _note_gradient(self, gradient: Tensor) -> None:
        self._softmax_distance = distance_from_softmax(gradient)

    def before_step(self) -> None:
        """Make sure, once in a stage, that the loss is one whose curvature was estimated; no gradient for the rates."""
        distance, self._softmax_distance = self._softmax_distance, None
        if distance is not None and float(distance) > curvature.TOLERANCE:
            self._give_up_fixed_point("the loss is no cross-entropy of the model's outputs, and no loss_fn was named")
        if self.fixed_point:
            self.factors.rate.grad = None

    def _give_up_fixed_point(self, why: str) -> None:
        what = f"{why}, so that its curvature is not known"
        if self.settings.rates == "fixed-point" or self.search is not None:
            self.abandon()
            ratio = "" if self.search is None else "leave out the ratio and "
            raise ConfigError(f"{what}, and rates by their fixed point need it; {ratio}set rates='adam'")
        self.fixed_point = False
        self.tell(f"{what}: the rates are found by Adam; say rates='adam' to choose that yourself")

    def after_step(self) -> None:
        """Go a part of the way to the fixed point for the curvature as it is estimated now."""
        if self.fixed_point and self.factors.curvature.updates:
            with torch.no_grad():
                target = dirac.stationary_rate(self._curvature(), self.eps2)
                self.factors.rate.lerp_(target, self.step_size)

    def clamp(self) -> None:
        """Keep the rates where their gradient is finite."""
        dirac.clamp_(self.factors.rate)

    def _curvature(self) -> Tensor:
        """The curvature of the total loss in theta for a divergence of weight 1, measured or as the rates tell it."""
        if self.fixed_point and self.factors.curvature.updates:
            return self._of_whole_loss(self.factors.curvature)
        return dirac.resistance(self.factors.rate.detach(), self.eps2)

    def _of_whole_loss(self, estimate: RunningCurvature) -> Tensor:
        return estimate.value() / self.kl_weight

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

    def detach(self) -> None:
        super().detach()
        self._outputs = self.factors.drawn = None
        if self.search is not None:
            self.search.detach()
        if self._output_hook is not None:
            self._output_hook.remove()

    def watched(self) -> Tensor:
        return self.factors.rate.detach()

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
