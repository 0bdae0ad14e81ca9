"""One stage of a method: something is trained or measured on some sites, then their channels are judged and cut."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rbprune.bayes import dirac
from rbprune.graph import ChannelGraph, Site
from rbprune.methods.channel_factor import Gates, Law
from rbprune.methods.cost_target import LEAST, match_macs
from rbprune.methods.price import Price
from rbprune.methods.recalibrate import recalibrate
from rbprune.utils.inputs import Arguments

_RECENT_BATCHES, _RECENT_BYTES = 16, 1 << 28


@dataclass(frozen=True)
class Settings:
    """What a stage is told; each method reads what concerns it."""

    dataset_size: int
    price: Price
    noise: Literal["example", "batch"] | None = None
    """One draw per example or per batch; None: as the method has it."""
    threshold: float | None = None
    """Where a channel counts as redundant, in the method's own unit; None: the method's own."""
    rate_init: float = dirac.RATE_INIT
    rates: Literal["adam", "fixed-point"] = "adam"
    """How the rates of rbp, rrbp and ibp are found."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Settings of one method only."""
    macs: float | None = None
    """Cut down to so many MACs, by the method's ranking, instead of where its threshold says."""
    later: tuple[str, ...] = ()
    """Where ``macs`` decides: the sites of the stages to come, which will do their part of it."""
    least: float = LEAST
    """The share of its channels that each site keeps where ``macs`` decides."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """For methods that take the share of channels to remove, that of each site."""


@dataclass(frozen=True)
class Verdict:
    """What a method says about the channels of one site.

    ``value`` is its diagnostic for each channel, higher for a more redundant one; ``redundant`` says which go;
    ``factor`` is multiplied into the consumers' weights before the cut; ``rank`` is what a cut to a number of MACs
    follows instead of ``value``, where values of different sites cannot be compared.
    """

    value: Tensor
    redundant: Tensor
    factor: Tensor | None = None
    rank: Tensor | None = None


@dataclass(frozen=True)
class StageResult:
    """What a finished stage did.

    ``values`` are the method's diagnostic per channel, ``channels`` those before and after, ``guarded`` the sites where
    one channel was spared because all were redundant, ``notes`` one more number per site where a method has one
    (relative reconstruction error).
    """

    diagnostic: str
    values: dict[str, Tensor]
    channels: dict[str, tuple[int, int]]
    undecided: dict[str, float]
    price: dict[str, tuple[float, float]]
    guarded: list[str]
    notes: dict[str, float]


class Stage:
    """Base of all methods: what they share. Made by ``Pruner``; see there for the loop.

    A method overrides ``judge``; where it trains something of its own, ``module``, ``penalty``, ``optimizer`` and
    ``after_step``; where it looks at data, ``observe``. See docs/methods.md.
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

    def __init__(self, graph: ChannelGraph, names: list[str], settings: Settings, *, remember: bool = True) -> None:
        self.graph, self.names, self.settings = graph, names, settings
        self.sites: list[Site] = [graph[name] for name in names]
        self.module: nn.Module | None = None
        """What is trained beside the network."""
        self.price: dict[str, tuple[float, float]] = {}
        self.notes: dict[str, float] = {}
        self.result: StageResult | None = None
        self._recent: deque[Arguments] = deque(maxlen=_RECENT_BATCHES if remember else 0)
        self._watch = graph.model.register_forward_pre_hook(self._remember, with_kwargs=True)

    # what a method fills in

    @classmethod
    def aims(cls, rates: str) -> bool:
        """Whether it can aim at a number of MACs over several stages, by ``ahead``."""
        return False

    @classmethod
    def beside(cls, settings: Settings) -> float:
        """What the method computes in a training step beside the step, as a part of it."""
        return 0.0

    def judge(self) -> dict[str, Verdict]:
        """A verdict for each site of the stage."""
        raise NotImplementedError

    @property
    def finds_price(self) -> bool:
        """Whether the price is found on the way, so that there is no better one to ask for."""
        return False

    def ahead(self) -> dict[str, Tensor]:
        """How the channels of later sites rank among those of this stage, as far as it can be seen now."""
        return {}

    def penalty(self) -> Tensor | None:
        """What is added to the mean loss while training, beside the data's part."""
        return None

    def optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """The optimizer of ``module``; its rate is its own."""
        return None if self.module is None else torch.optim.Adam(self.module.parameters(), lr=lr)

    def look(self) -> None:
        """Called between the forward and the backward pass."""

    def after_backward(self) -> None:
        """Called between the backward pass and the optimizer's step."""

    def after_step(self) -> None:
        """Called after every optimizer step."""

    def observe(self, batches: Iterable[tuple[Any, Any]], loss_fn: Any, dense: nn.Module | None = None) -> None:
        """Look at data before judging; ``dense`` is the network as it was before any cut, where asked for."""

    def watched(self) -> Tensor | None:
        """What must have come to rest for the stage to be over early."""
        return None

    def undecided(self) -> dict[str, float]:
        """For each site the share of channels about which the method is not sure; empty where it cannot say."""
        return {}

    def before_cut(self, gone: dict[str, Tensor]) -> None:
        """Change the weights of what stays, knowing what goes."""

    def let_go(self) -> None:
        """Take everything off the model that the stage put on it."""

    # what all share

    def kl(self) -> Tensor:
        """The penalty as a tensor, 0 where there is none: to be added to a mean negative log-likelihood."""
        penalty = self.penalty()
        return next(self.graph.model.parameters()).new_zeros(()) if penalty is None else penalty

    def clamp(self) -> None:
        """Call it after every optimizer step."""
        self.after_step()

    def param_groups(self, lr: float, rate_lr: float, **options: Any) -> list[dict[str, Any]]:
        """Groups for an optimizer of your own: the network's weights, and what the method trains (never decayed)."""
        weights = [p for p in self.graph.model.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": weights, "lr": lr, **options}]
        if self.module is not None:
            groups.append({"params": list(self.module.parameters()), "lr": rate_lr, "weight_decay": 0.0})
        return groups

    def _remember(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._recent.maxlen and module.training and torch.is_grad_enabled():
            tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
            size = sum(a.numel() * a.element_size() for a in tensors)
            while self._recent and size * (len(self._recent) + 1) > _RECENT_BYTES:
                self._recent.popleft()
            self._recent.append(Arguments(args, kwargs))

    def finish(
        self, *, batches: Iterable[Any] | None = None, optimizer: torch.optim.Optimizer | None = None
    ) -> StageResult:
        """Judge, fold, remove, recalibrate batch normalisation.

        ``batches`` are inputs for the recalibration (by default the last ones that the model saw in training);
        ``optimizer`` is one that goes on with the smaller network, and its state follows.
        """
        if self.result is not None:
            return self.result
        undecided = self.undecided()
        verdicts = self.judge()
        self.abandon(forget=False)
        gone = self._chosen(verdicts)
        guarded = [name for name, verdict in verdicts.items() if self._spare_one(name, verdict, gone[name])]
        for name, verdict in verdicts.items():
            if verdict.factor is not None:
                self.graph.scale(self.graph[name], verdict.factor)
        self.before_cut(gone)
        before = {name: self.graph[name].channels for name in self.names}
        drop = {name: mask.nonzero().flatten().tolist() for name, mask in gone.items()}
        self.graph.remove(drop, optimizer=optimizer)
        recalibrate(self.graph.model, self._recent if batches is None else batches)
        self._recent.clear()
        channels = {name: (before[name], self.graph[name].channels) for name in self.names}
        values = {name: verdict.value.detach().clone() for name, verdict in verdicts.items()}
        self.result = StageResult(self.diagnostic, values, channels, undecided, self.price, guarded, self.notes)
        return self.result

    def _chosen(self, verdicts: dict[str, Verdict]) -> dict[str, Tensor]:
        """What the method calls redundant; where a number of MACs is given, as much of its ranking as that needs."""
        redundant = {name: verdict.redundant.clone() for name, verdict in verdicts.items()}
        if self.settings.macs is None or self.cuts_itself:
            return redundant
        dead = [name for name, mask in redundant.items() if bool(mask.all())]
        if dead and not self.finds_price:
            warnings.warn(
                f"every channel of {', '.join(map(repr, dead))} was redundant, so their ranking may say little; a "
                "lower prune.price leaves more to tell them apart",
                stacklevel=3,
            )
        ranks = {name: v.value if v.rank is None else v.rank for name, v in verdicts.items()}
        gone = match_macs(self.graph, ranks | self.ahead(), self.settings.macs, self.settings.least)
        return {name: gone[name] for name in ranks}

    def _spare_one(self, name: str, verdict: Verdict, gone: Tensor) -> bool:
        if not bool(gone.all()):
            return False
        gone[verdict.value.argmin()] = False
        remedy = "a lower prune.price" if self.price else "another prune.threshold"
        warnings.warn(
            f"every channel of {name!r} was redundant; the least redundant one is kept. If the error suffers, {remedy} "
            "keeps more",
            stacklevel=3,
        )
        return True

    def abandon(self, *, forget: bool = True) -> None:
        """Take everything off the model and change nothing; the stage is over without a result."""
        self._watch.remove()
        self.let_go()
        if forget:
            self._recent.clear()

    def split(self, values: Tensor) -> dict[str, Tensor]:
        """A vector over all channels of the stage, site by site."""
        return dict(zip(self.names, values.split([site.channels for site in self.sites]), strict=True))


class GateStage(Stage):
    """Base of the methods that multiply trained factors on channels: they give a law, and read it in ``judge``."""

    per: ClassVar[Literal["example", "batch"]] = "example"
    """Factors are drawn for each example, or once for a batch."""

    def __init__(self, graph: ChannelGraph, names: list[str], settings: Settings, *, remember: bool = True) -> None:
        super().__init__(graph, names, settings, remember=remember)
        device = next(graph.model.parameters()).device
        self.module = self.law = self.make_law(sum(site.channels for site in self.sites)).to(device)
        self.gates = Gates(graph, self.sites, self.law, per=settings.noise or self.per)

    def make_law(self, channels: int) -> Law:
        """The law of all channels of the stage, in the order of its sites."""
        raise NotImplementedError

    def let_go(self) -> None:
        self.gates.detach()
