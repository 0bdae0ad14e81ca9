"""One stage of a method: something is trained or measured on some sites, then their channels are judged and cut."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rbprune.graph import ChannelGraph, Site
from rbprune.methods.channel_record import ChannelEvidence, after_cut, record_sites
from rbprune.methods.cost_target import cut_to_target
from rbprune.methods.cut import UNKNOWN, Forecast, network_state
from rbprune.methods.ending import STAGE_STEPS, Batch, stage_batches
from rbprune.methods.loop_watch import LoopWatch
from rbprune.methods.rounding import round_verdicts
from rbprune.methods.settings import PruningSettings, StageContext
from rbprune.methods.stage_cut import check_compensation, cut_stage
from rbprune.methods.verdict import StageResult, Verdict, spare_one
from rbprune.utils.checked_calls import data_loss, outputs_of
from rbprune.utils.modes import evaluating
from rbprune.utils.processes import BatchShare


class Stage:
    """Base of all methods: what they share. Made by ``Pruner``; see there for the loop.

    A method overrides ``judge``; where it trains something of its own, ``module``, ``penalty`` and ``optimizer``; where
    something has to happen in every training step, ``update_curvature``, ``before_step``, ``after_step`` and ``clamp``;
    where it looks at data before it judges, ``observe``. See docs/methods.md.
    """

    diagnostic: ClassVar[str] = "value"
    """What the values of a verdict are."""
    trains: ClassVar[bool] = True
    """Whether the network is trained before the channels are judged."""
    observes: ClassVar[bool] = False
    """Whether ``observe`` wants to see batches before the channels are judged."""
    observe_share: ClassVar[float] = 1.0
    """What ``observe`` costs per batch, in training steps: 1/3 for a forward pass alone."""
    needs_ratio: ClassVar[bool] = False
    """Whether the method has to be told how much to cut."""
    cuts_itself: ClassVar[bool] = False
    """Whether the verdict already cuts as much as was asked for."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names that ``prune.options`` may have."""
    needs_dense: ClassVar[bool] = False
    """Whether ``observe`` compares with the network as it was before any cut."""
    infers_rates: ClassVar[bool] = False
    """Whether ``prune.rates`` concerns the method."""
    refits: ClassVar[bool] = False
    """Whether the method itself changes the weights of what stays, so that ``prune.compensate`` does not concern it."""

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        self.graph, self.names, self.context, self.settings = graph, names, context, context.settings
        check_compensation(type(self), context.settings)
        self.sites: list[Site] = [graph[name] for name in names]
        self.module: nn.Module | None = None
        """What is trained beside the network."""
        self.price: dict[str, tuple[float, float]] = {}
        self.notes: dict[str, float] = {}
        self.evidence: dict[str, ChannelEvidence] = {}
        """What ``judge`` weighed, for methods that weigh evidence."""
        self.guarded: list[str] = []
        """Sites where one channel was spared because all were redundant."""
        self.result: StageResult | None = None
        self.share: BatchShare | None = None
        """What the batch of this process counts among several; None: as many as it has examples."""
        self.start: Mapping[str, Tensor] | None = network_state(graph.model) if context.check is not None else None
        """The network before the stage, to which a cut that went wrong goes back."""
        self.loop = LoopWatch(graph.model, self, remember=remember)
        self.tell: Callable[[str], None] = partial(warnings.warn, stacklevel=3)
        """Says what the user should know: as a Python warning, unless somebody listens."""
        self._kl_calls, self._observed = 0, False

    # what a method fills in

    @classmethod
    def can_target(cls, settings: PruningSettings) -> bool:
        """Whether it can come down to a target over several stages, by ``rank_later_sites``."""
        return False

    @classmethod
    def step_overhead(cls, settings: PruningSettings, steps: int) -> float:
        """What it computes beside each training step in a stage of so many, as a part of a step."""
        return 0.0

    def expect(self, steps: int) -> None:
        """Get ready for at most so many training steps; called before the first, where that is known."""

    def judge(self) -> dict[str, Verdict]:
        """A verdict for each site of the stage."""
        raise NotImplementedError

    @property
    def finds_price(self) -> bool:
        """Whether the price is found on the way, so that there is no better one to ask for."""
        return False

    def rank_later_sites(self) -> dict[str, Tensor]:
        """How the channels of later sites rank among those of this stage, as far as it can be seen now."""
        return {}

    def penalty(self) -> Tensor | None:
        """What is added to the mean loss while training, beside the data's part."""
        return None

    def optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """The optimizer of ``module``; its rate is its own."""
        return None if self.module is None else torch.optim.Adam(self.module.parameters(), lr=lr)

    def update_curvature(self, targets: Any) -> None:
        """Called between the forward and the backward pass, by ``kl``; ``targets`` is None where nobody gave them."""

    def before_step(self) -> None:
        """Called between the backward pass and the step of the weights' optimizer."""

    def after_step(self) -> None:
        """Called once after every step of the weights' optimizer."""

    def clamp(self) -> None:
        """Bring what the method trains back into its range; called after every optimizer's step, does no harm twice."""

    def observe(self, batches: Iterable[tuple[Any, Any]], loss_fn: Any) -> None:
        """Look at data before judging: the gradients of these batches, in evaluation, as ``before_step`` sees them."""
        model, where = self.graph.model, "a batch that the method observes before it judges"
        self._observed = True
        with evaluating(model):
            for inputs, targets in batches:
                data_loss(loss_fn, outputs_of(model, inputs, where), targets, where).backward()
                self.before_step()
                model.zero_grad(set_to_none=True)

    def watched(self) -> Tensor | None:
        """What must have come to rest for the stage to be over early."""
        return None

    def undecided(self) -> dict[str, float]:
        """For each site the share of channels about which the method is not sure; empty where it cannot say."""
        return {}

    def before_cut(self, gone: dict[str, Tensor]) -> None:
        """Change the weights of what stays, knowing what goes."""

    @classmethod
    def knows_curvature(cls, settings: PruningSettings) -> bool:
        """Whether there will be ``compensating_factors``, which follow from the curvature of the loss."""
        return False

    def compensating_factors(self, gone: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the channels of each site are multiplied by beside their factors, to make up for what goes."""
        raise NotImplementedError

    def detach(self) -> None:
        """Take everything off the model that the stage put on it."""

    # what all share

    def kl(self, targets: Any = None) -> Tensor:
        """The penalty as a tensor, 0 where there is none: to be added to a mean negative log-likelihood.

        To be called once in every training step, between the forward and the backward pass. A plain cross-entropy needs
        no ``targets``; for another ``loss_fn`` of the pruner they say how much each output counts.
        """
        self._kl_calls += 1
        self.update_curvature(targets)
        penalty = self.penalty()
        return next(self.graph.model.parameters()).new_zeros(()) if penalty is None else penalty

    def batches(self, loader: Iterable[Batch], most: int = STAGE_STEPS) -> Iterator[Batch]:
        """Batches of a loader, again and again, until the stage is over, or so many; a step must follow on each."""
        return stage_batches(self, loader, most)

    def param_groups(self, lr: float, rate_lr: float | None = None, **options: Any) -> list[dict[str, Any]]:
        """Groups for an optimizer of your own: the network's weights, and what the method trains (never decayed)."""
        weights = [p for p in self.graph.model.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": weights, "lr": lr, **options}]
        if self.module is not None:
            own = self.settings.step_size if rate_lr is None else rate_lr
            groups.append({"params": list(self.module.parameters()), "lr": own, "weight_decay": 0.0})
        return groups

    def finish(
        self, *, batches: Iterable[Any] | None = None, optimizer: torch.optim.Optimizer | None = None
    ) -> StageResult:
        """Judge, forecast, fold, measure, remove, recalibrate batch normalisation.

        ``batches`` are inputs for the recalibration (by default the last ones that the model saw in training);
        ``optimizer`` is one that goes on with the smaller network, and its state follows. Where the pruner has measured
        the dense network, the cut is measured too, and taken back to what can be afforded (``prune.max_rise``).
        """
        if self.result is not None:
            return self.result
        self._check_loop()
        if self.observes and not self._observed:
            self.observe_recent()
        undecided, (verdicts, gone) = self.undecided(), self.decide()
        records = record_sites(self.graph, verdicts, gone, self.evidence)
        report = cut_stage(self, verdicts, gone, self.loop.recent if batches is None else batches, optimizer)
        self.loop.recent.clear()
        channels = {name: (len(gone[name]), self.graph.channels_left(name)) for name in self.names}
        values = {name: verdict.value.detach().clone() for name, verdict in verdicts.items()}
        records = after_cut(records, self.graph)
        self.result = StageResult(
            self.diagnostic, values, channels, undecided, self.price, self.guarded, self.notes, report, records
        )
        return self.result

    def decide(self) -> tuple[dict[str, Verdict], dict[str, Tensor]]:
        """A verdict for each site, and which of its channels go; one stays where all were to go."""
        gone = self._chosen(verdicts := self.judge())
        remedy = "a lower prune.price" if self.price else "another prune.threshold"
        spared = {n: spare_one(n, each, gone[n], remedy) for n, each in verdicts.items() if self.graph[n].keeps_one}
        self.guarded = [name for name, message in spared.items() if message is not None]
        for message in filter(None, spared.values()):
            self.tell(message)
        return verdicts, round_verdicts(verdicts, gone, self.settings.channel_step, spare=self.context.target is None)

    def forecast(self, gone: dict[str, Tensor]) -> Forecast:
        """By how many nats per example the loss will rise when these channels go, where it can be said."""
        return UNKNOWN

    def worth(self) -> dict[str, Tensor]:
        """The most that removing each may cost, in nats per example, where a measured rise decides that."""
        return {}

    def first_ranks(self) -> dict[str, Tensor]:
        """How channels ranked when the stage began; empty where that was not seen."""
        return {}

    def close(self, steps: int) -> None:
        """Decide now, and bring the factors to where they will be after the cut within so many training steps."""

    few_undecided = 0
    """About so many channels a stage may be unsure when it ends."""

    @property
    def decided(self) -> bool:
        """Whether the method is sure of all but a few channels, so that the stage may end once it is at rest."""
        return True

    @property
    def closing(self) -> bool:
        """Whether ``close`` was called."""
        return False

    @property
    def closed(self) -> bool:
        """Whether the cut would no longer change much."""
        return True

    def observe_recent(self) -> None:
        """Look at the last batches of the training loop, where nobody has shown the stage any others."""

    def trains_itself(self) -> bool:
        """Whether ``module`` needs no optimizer of the loop's."""
        return self.module is None

    def _check_loop(self) -> None:
        """Refuse to judge after a loop that left out what the judgement rests on."""
        own, kl = self.trains_itself(), self._kl_calls > 0 or not self.fills_in("penalty", "update_curvature")
        alone = own and not self.fills_in("before_step", "after_step")
        fault = self.loop.fault(self.names, kl=kl, steps=self._observed or alone, own_steps=own)
        if fault is not None:
            self.abandon()
            raise fault

    def fills_in(self, *names: str) -> bool:
        """Whether the method has one of these of its own."""
        return any(getattr(type(self), name) is not getattr(Stage, name) for name in names)

    def _chosen(self, verdicts: dict[str, Verdict]) -> dict[str, Tensor]:
        """What the method calls redundant; where a target is given, as much of its ranking as that needs."""
        redundant = {name: verdict.redundant.clone() for name, verdict in verdicts.items()}
        if self.context.target is None or self.cuts_itself:
            return redundant
        dead = [name for name, mask in redundant.items() if bool(mask.all())]
        if dead and not self.finds_price:
            self.tell(
                f"every channel of {', '.join(map(repr, dead))} was redundant, so their ranking may say little; a "
                "lower prune.price leaves more to tell them apart"
            )
        ranks = {name: verdict.ranking for name, verdict in verdicts.items()}
        gone = cut_to_target(self.graph, ranks | self.rank_later_sites(), self.context.target, self.settings.least)
        return {name: gone[name] for name in ranks}

    def abandon(self, *, forget: bool = True) -> None:
        """Take everything off the model, which stays as it is; the stage is over without a result."""
        self.loop.detach()
        self.detach()
        if forget:
            self.loop.recent.clear()

    def split(self, values: Tensor) -> dict[str, Tensor]:
        """A vector over all channels of the stage, site by site."""
        return dict(zip(self.names, values.split([site.channels for site in self.sites]), strict=True))
