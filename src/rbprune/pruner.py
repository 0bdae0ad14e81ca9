"""Bring your own loop: stages of inference over a model, one after another."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rbprune.bayes.likelihood import Likelihood, Location, Softmax, likelihood_of
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, Plan, trace
from rbprune.methods import PruningSettings, Stage, StageContext, find_method
from rbprune.methods.branch_stage import schedule_stages, still_there
from rbprune.methods.cost_target import equal_shares
from rbprune.methods.curvature import check_outputs
from rbprune.methods.decide_rates import decide_rates
from rbprune.methods.latency import use_latency
from rbprune.methods.loss_check import LossCheck
from rbprune.methods.price import ChannelPrices, DefaultPrice
from rbprune.methods.settings import Target
from rbprune.utils import processes
from rbprune.utils.checked_calls import outputs_of
from rbprune.utils.finite import check_network
from rbprune.utils.modes import evaluating

Loss = Callable[[Any, Any], Tensor]
"""``loss_fn(outputs, targets)``: a mean negative log-likelihood."""

MAX_RISE_SHARE = 0.1
"""The part of what the dense network explains by which its loss may rise in cuts, by default."""
UNKNOWN_CLASSES = 10
"""A network whose outputs say nothing about their number is priced, until it is looked at, as if it told so many."""


@dataclass(frozen=True)
class DenseMeasures:
    """What was measured of the dense network, in nats per example."""

    loss: float
    explained: float | None
    """How much it explains; None where that cannot be said."""


class Pruner:
    """Iterates over the stages of a method; each stage's ``finish`` makes the network smaller.

    The whole contract with a training loop is forward, loss + ``stage.kl()``, backward, step, for every method:

    >>> import torch
    >>> from torch.nn import functional as F
    >>> from rbprune import Price
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> pruner = Pruner(model, torch.zeros(1, 8), dataset_size=100, price=Price(nats=20))
    >>> for stage in pruner:
    ...     optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3))
    ...     for _ in range(3):
    ...         x, y = torch.randn(32, 8), torch.randint(2, (32,))
    ...         loss = F.cross_entropy(model(x), y) + stage.kl()
    ...         optimizer.zero_grad(); loss.backward(); optimizer.step()
    ...     result = stage.finish()
    >>> pruner.graph.macs() <= 8 * 16 + 16 * 2
    True

    Args:
        model: The trained network; it is changed in place.
        example_inputs: What one call of the model takes: a tensor, a tuple of arguments, or a mapping of names to them.
        dataset_size: The number of training examples.
        loss_fn: The loss of the loop, where it is known beforehand; without it the first gradients tell its kind.
        settings: Settings of pruning to start from, the defaults if there are none.
        changes: Settings of pruning by name, such as ``method="rrbp"``, ``price=Price(nats=20)``, ``macs_ratio=2`` or
            ``rates="adam"``; all of them are in ``rbprune.methods.PruningSettings`` and docs/recipes.md.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        *,
        dataset_size: int,
        loss_fn: Loss | None = None,
        settings: PruningSettings | None = None,
        **changes: Any,
    ) -> None:
        if dataset_size < 1:
            raise ConfigError(f"dataset_size is the number of training examples; {dataset_size} is not one")
        if "method_options" in changes:  # its name before it was that of the setting
            changes["options"] = changes.pop("method_options")
        settings = PruningSettings(**changes) if settings is None else settings.changed(**changes)
        self.model = check_network(model)
        self.method = find_method(settings.method)
        self.method.check_options(settings.options)
        self.graph: ChannelGraph = trace(model, example_inputs, keep=settings.keep)
        settings = use_latency(self.graph, settings)
        self.stages: list[list[str]] = schedule_stages(self.graph, settings)
        """The sites, or branches, of each stage, by name."""
        self.likelihood: Likelihood | None = None if loss_fn is None else likelihood_of(loss_fn)
        """What the loss is a likelihood of, where it is known."""
        self.loss_fn = loss_fn
        self._given, self._classes = settings, self._count_classes(example_inputs)
        self.settings = decide_rates(settings, self.method, self._classes, self.likelihood)
        """The settings with what was left open decided for this network; the price only where it was measured."""
        self.dense: nn.Module | None = None
        """A copy of the network before any cut, for methods that compare with it."""
        self.dense_measures: DenseMeasures | None = None
        """What ``measure`` found."""
        self._default_price = DefaultPrice.of(self.graph, dataset_size)
        price = self.settings.price or self._default_price.price(math.log(self._classes or UNKNOWN_CLASSES))
        self._context = StageContext(
            dataset_size,
            price.resolve(self.graph, dataset_size),
            self.settings,
            *self._target_and_shares(),
            self.likelihood,
        )
        self._price_is_open = self.settings.price is None
        if self._price_is_open:
            self._context = replace(self._context, scaled_prices=self._set_price)

    def measure(self, batches: Iterable[tuple[Any, Any]], found: DenseMeasures | None = None) -> DenseMeasures:
        """Look at the dense network on some training batches of (inputs, targets), before the first stage.

        The price, where it was left open, then follows what the network explains. Every cut is measured on the same
        batches, and taken back to what ``max_rise`` affords. ``found`` is what an earlier look found, so that only the
        batches have to be given again.
        """
        if self.loss_fn is None or self.likelihood is None:
            raise ConfigError("Pruner.measure needs the loss: give loss_fn to the Pruner")
        check = LossCheck(list(batches), self.loss_fn, self.likelihood)
        if not check.batches:
            raise ConfigError("Pruner.measure needs at least one batch of (inputs, targets)")
        if len(set(counts := processes.gathered(len(check.batches)))) > 1:
            raise ConfigError(
                f"Pruner.measure got {counts} batches in the processes that train together; give as many in each"
            )
        if found is None:
            self._measure_errors(check)
            found = DenseMeasures(*check.look(self.model))
        self._context = replace(self._context, check=check)
        self._take(found)
        return found

    def _take(self, found: DenseMeasures) -> None:
        """Let the price, where it was left open, and the limit of a cut follow what was measured."""
        self.dense_measures = found
        if self._price_is_open and found.explained is not None:
            self._set_price(found.explained)
        allowed = self._allowed_rise(found.explained)
        self._context = replace(self._context, limit=found.loss + allowed, allowed=allowed)

    def _look_again(self) -> None:
        """A network that was hardly trained explains more with every stage: it is judged by what it explains now."""
        before, check = self.dense_measures, self._context.check
        if before is not None and before.explained is not None and check is not None:
            _, explained = check.look(self.model)
            self._take(replace(before, explained=max(before.explained, explained or 0.0)))

    def _measure_errors(self, check: LossCheck) -> None:
        """Let the errors of the trained network say how many nats they are worth, where the loss is one of errors."""
        if isinstance(self.likelihood, Location) and not self.likelihood.is_measured:
            with evaluating(self.model), torch.no_grad():
                for inputs, targets in check.batches:
                    self.likelihood.measure(outputs_of(self.model, inputs, "a training batch"), targets)
            self.likelihood.sums = processes.mean(self.likelihood.sums)
            self.likelihood.is_measured = True

    def _allowed_rise(self, explained: float | None) -> float:
        """How far above the loss of the dense network a cut may lead, in nats per example."""
        if self.settings.ratio is not None:
            return math.inf  # a target is met, and the verdict tells what it cost
        if self.settings.max_rise is not None:
            return self.settings.max_rise
        return math.inf if explained is None else MAX_RISE_SHARE * explained

    def _set_price(self, explained: float) -> ChannelPrices:
        """Set the price that was left open, for a network that explains so much; returns what it comes to."""
        price = self._default_price.price(explained)
        self.settings = self.settings.model_copy(update={"price": price})
        prices = self._default_price.resolve(price)
        self._context = replace(self._context, prices=prices, settings=self.settings, scaled_prices=None)
        return prices

    def _count_classes(self, example_inputs: Any) -> int | None:
        """How many classes there are, where the outputs are their scores or, without a loss, look like it."""
        if self.likelihood is not None and not isinstance(self.likelihood, Softmax):
            return None
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        inputs = tree_map_only(Tensor, lambda tensor: tensor.to(device), example_inputs)
        with evaluating(self.model), torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = outputs_of(self.model, inputs, "the example_inputs")
        if self.likelihood is not None:
            check_outputs(self.likelihood, outputs)
            return int(outputs.shape[1])
        scores = isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1
        return outputs.shape[1] if scores else None

    def _target_and_shares(self) -> tuple[Target | None, tuple[str, ...], dict[str, float]]:
        """What the ratio of the settings means for the stages, refused where the method cannot follow it."""
        stage, ratio = self.method.stage, self.settings.ratio
        if ratio is None:
            if stage.needs_ratio:
                raise ConfigError(f"method {self.method.name!r} must be told how much to cut: set prune.macs_ratio=2")
            return None, (), {}
        cost, times = ratio
        target = Target(cost, cost.total(self.graph) / times, self.settings.channel_step)
        finds_way = len(self.stages) == 1 or stage.can_target(self.settings)
        if not finds_way and not stage.needs_ratio:
            raise ConfigError(
                f"method {self.method.name!r} decides layer by layer how much to cut, so it cannot aim at "
                f"prune.{cost.name}_ratio; leave it out and change prune.price, take a method of one stage (ibp), or, "
                "for rbp and rrbp on a classifier, prune.rates=fixed-point"
            )
        shares: dict[str, float] = {}
        if stage.needs_ratio or not stage.cuts_itself:
            # also where the shares are not used: what is out of reach shall be told before hours of training
            shares = equal_shares(self.graph, [n for names in self.stages for n in names], target, self.settings.least)
        return target if finds_way else None, (), shares if stage.needs_ratio else {}

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        for number in range(len(self.stages)):
            if not self.sites_left(number):
                continue
            stage = self.stage(number)
            try:
                yield stage
            except GeneratorExit:
                stage.abandon()
                raise
            if stage.result is None and stage.trains and not stage.loop.forwards:
                warnings.warn(
                    f"no training step was made in the stage of {', '.join(stage.names)}: nothing is known about their "
                    "channels",
                    stacklevel=2,
                )
            stage.finish()

    def sites_left(self, number: int) -> list[str]:
        """The sites, or branches, of a stage that have not gone with a branch; without any there is nothing to do."""
        return still_there(self.graph, self.stages[number])

    def stage(self, number: int, *, remember: bool = True, look: bool = True) -> Stage:
        """Begin one stage: its noise is on the model until ``finish``.

        With ``remember`` it holds on to the last inputs, for the recalibration in ``finish``. Without ``look`` what
        was measured last still holds: a stage that was interrupted goes on.
        """
        if look and number:
            self._look_again()
        if self.method.stage.needs_dense and self.dense is None and number == 0:
            self.dense = copy.deepcopy(self.model).requires_grad_(False)
        context = replace(self._context, dense=self.dense)
        if context.target is not None:
            later = [name for names in self.stages[number + 1 :] for name in still_there(self.graph, names)]
            context = replace(context, later=tuple(later))
        return self.method.stage(self.graph, self.sites_left(number), context, remember=remember)

    def rehearse(self) -> None:
        """Begin the first stage and leave it: what a method refuses, it refuses before hours of training."""
        if not len(self):
            return
        with torch.random.fork_rng(devices=[]):
            stage = self.stage(0, remember=False)
            try:
                stage.penalty()
            finally:
                stage.abandon()
        self.dense = None  # of a network that is not trained yet

    def count_stages(self, method: str, steps: int) -> tuple[int, float]:
        """How many stages another method would have on this network under the same settings, and what it would compute
        beside each of so many training steps in a stage, as a part of a step."""
        settings, found = self._given.changed(method=method), find_method(method)
        decided = decide_rates(settings, found, self._classes, self.likelihood)
        return len(schedule_stages(self.graph, settings)), found.stage.step_overhead(decided, steps)

    @property
    def plan(self) -> Plan:
        """What has been removed so far from the network as it was built, also before this pruner."""
        return self.graph.history().plan
