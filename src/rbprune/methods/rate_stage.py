"""The rates of Gaussian channel noise, inferred while the network trains: by Adam, or by going to their fixed point."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rbprune.bayes import dirac
from rbprune.bayes.explained import explained_nats
from rbprune.bayes.likelihood import Likelihood, Location, Softmax
from rbprune.errors import ConfigError, LoopError
from rbprune.graph import ChannelGraph
from rbprune.methods import curvature
from rbprune.methods.curvature import RunningCurvature, check_outputs, curvature_slopes, distance_from_softmax
from rbprune.methods.dirac_noise import DiracNoise
from rbprune.methods.gate_stage import GateStage
from rbprune.methods.price import ChannelPrices
from rbprune.methods.price_search import PriceSearch
from rbprune.methods.settings import ADAM_RATE, PruningSettings, StageContext
from rbprune.utils import processes


class RateStage(GateStage):
    """Infers a rate for each channel by training; what becomes of the channels is up to ``rbp.DiracStage``."""

    options = ("kl_weight",)
    infers_rates = True
    factors: DiracNoise

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        settings = context.settings
        self.fixed_point = settings.rates != "adam"
        if self.fixed_point and (settings.noise or self.per) == "batch":
            raise ConfigError("prune.rates='fixed-point' looks at single examples: it needs prune.noise='example'")
        channels = sum(graph[name].channels for name in names)
        if settings.compensate == "factors" and channels > curvature.MOST_CROSS:
            raise ConfigError(
                f"prune.compensate='factors' needs the curvature between all channels of a stage, which is kept for at "
                f"most {curvature.MOST_CROSS:,}, and this stage has {channels:,}; set it to 'weights'"
            )
        super().__init__(graph, names, context, remember=remember)
        self.kl_weight = settings.options.get("kl_weight", 1.0)
        self.step_size = settings.step_size
        self._outputs: Any = None
        self._softmax_distance: Tensor | None = None
        self.likelihood: Likelihood = Softmax() if context.likelihood is None else context.likelihood
        self._output_hook = graph.model.register_forward_hook(self._keep_outputs) if self.fixed_point else None
        self.given = self._eps2(context.prices)
        """eps^2 of the price as it was given."""
        self.search: PriceSearch | None = None
        if self.fixed_point and context.target is not None:
            later, due = [graph[name] for name in context.later], self.factors.update_is_due
            search = PriceSearch(graph, self.sites, later, context.prices, context.target, settings.least, due)
            self.search = search.to(self.factors.rate.device)
            self.factors.add_module("search", self.search)

    def _eps2(self, prices: ChannelPrices) -> Tensor:
        return dirac.eps2_from_nats(prices.of_all(self.graph, self.sites)).to(self.factors.rate.device)

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
    def step_overhead(cls, settings: PruningSettings, steps: int) -> float:
        """What the curvature takes; twice as much where only the loss's second derivative is known ("auto")."""
        passes = {"adam": 0, "fixed-point": 1, "auto": 2}[settings.rates]
        return passes * curvature.UPDATE / curvature.update_interval(steps)

    def expect(self, steps: int) -> None:
        self.factors.interval = curvature.update_interval(steps)

    @classmethod
    def knows_curvature(cls, settings: PruningSettings) -> bool:
        return settings.rates != "adam"

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
        return nats if self.factors.loss_per_nat == 1.0 else self.factors.loss_per_nat * nats

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
        """Estimate the curvature A of the total loss in theta, now and then (see ``curvature``)."""
        noise, outputs = self.factors, self._outputs
        self._outputs = None
        if outputs is None:
            return
        due, noise.passes = noise.update_is_due(), noise.passes + 1
        if not self.fixed_point or noise.drawn is None:
            return
        if noise.passes == 1:
            self._check_loss(outputs, targets)
            self._scale_price(outputs, targets)
        if due:
            self._look(noise.drawn, outputs, targets)
        noise.watch_slope()

    def _look(self, drawn: Tensor, outputs: Any, targets: Any) -> None:
        noise, search = self.factors, self.search
        seen = [(drawn, noise.curvature)]
        if search is not None and search.drawn is not None:
            seen.append((search.drawn, search.curvature))
        slopes = curvature_slopes(self.likelihood, outputs, targets, [theta for theta, _ in seen])
        if slopes is None:
            self._give_up_fixed_point("the loss has no second derivative in the model's outputs")
            return
        for slope, (_, estimate) in zip(slopes, seen, strict=True):
            estimate.update(slope, self.context.dataset_size, self.share)
        noise.note_curvature()
        if isinstance(self.likelihood, Location):
            if not self.likelihood.is_measured:
                self.likelihood.sums = processes.mean(self.likelihood.sums)
            self.factors.loss_per_nat = self.likelihood.loss_per_nat(outputs)
        if search is not None:
            later = self._of_whole_loss(search.curvature)
            search.update(self._of_whole_loss(noise.curvature), later, noise.curvature.updates)
        if noise.passes == 1 and self.context.likelihood is None:
            outputs.register_hook(self._note_gradient)

    def _scale_price(self, outputs: Any, targets: Any) -> None:
        """Where the price was left open, let it follow what the network explains."""
        if self.context.scaled_prices is None:
            return
        explained = explained_nats(self.likelihood, outputs, targets)
        if explained is not None:
            explained = float(processes.mean(torch.tensor(explained, device=self.factors.rate.device)))
            prices = self.context.scaled_prices(explained)
            self.given = self._eps2(prices)
            if self.search is not None:
                self.search.set_prices(prices)

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
            self.factors.take_slope()

    def _give_up_fixed_point(self, why: str) -> None:
        what = f"{why}, so that its curvature is not known"
        by_factors = self.settings.compensate == "factors"
        if self.settings.rates == "fixed-point" or self.search is not None or by_factors:
            self.abandon()
            ratio = "" if self.search is None else "leave out the ratio and "
            ratio += "set prune.compensate='none' and " if by_factors else ""
            raise ConfigError(f"{what}, and rates by their fixed point need it; {ratio}set rates='adam'")
        self.fixed_point = False
        self.tell(f"{what}: the rates are found by Adam; say rates='adam' to choose that yourself")

    def after_step(self) -> None:
        """Go a part of the way to the fixed point for the curvature as it is estimated now or, once it is decided what
        goes, to 0 or 1."""
        noise = self.factors
        with torch.no_grad():
            if noise.is_decided:
                noise.rate.add_(noise.pace * (noise.goal - noise.rate))
            elif self.fixed_point and noise.curvature.updates:
                noise.rate.lerp_(dirac.stationary_rate(self._curvature(), self.eps2), self.step_size)

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

    def detach(self) -> None:
        super().detach()
        self._outputs = self.factors.drawn = None
        if self.search is not None:
            self.search.detach()
        if self._output_hook is not None:
            self._output_hook.remove()

    def watched(self) -> Tensor:
        return self.factors.rate.detach()
