"""The settings of pruning: what every stage of every method is told, each default written here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from rbprune.bayes import dirac
from rbprune.bayes.likelihood import Likelihood
from rbprune.graph.cost import COSTS, Cost
from rbprune.methods.loss_check import LossCheck
from rbprune.methods.price import ChannelPrices, Price
from rbprune.utils.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

FIXED_POINT_STEP, ADAM_RATE = 0.05, 1e-2
"""How far rates go towards their fixed point in a step, and the learning rate of whatever else a method trains."""

SUMS_BY_DEFAULT = True
"""Whether methods prune the widths of residual sums where ``prune.sums`` leaves it open; docs/residual.md says why."""

BLOCKS_BY_DEFAULT = False
"""Whether whole branches are judged where nobody says so."""


class PruningSettings(Section):
    """How channels are judged; each method reads what concerns it."""

    method: str = "rbp"
    price: Price | None = None
    """What a channel must bring to stay; by default the whole network costs 0.87 of what it explains."""
    rates: Literal["auto", "adam", "fixed-point"] = "auto"
    """How rbp, rrbp and ibp find the rates: by Adam, or by going to their fixed point for a running estimate of the
    curvature; auto takes the fixed point wherever the loss has a curvature that can be estimated."""
    rate_lr: float | None = Field(None, gt=0)
    """Learning rate of what a method trains beside the weights, 0.01 by default; for rates that go to their fixed point
    the share of the way that they go in each step, 0.05 by default."""
    rate_init: float = Field(dirac.RATE_INIT, gt=0, lt=1)
    noise: Literal["example", "batch"] | None = None
    """One draw per example or per batch; by default as the method has it."""
    threshold: float | None = None
    """Where a channel counts as redundant, in the method's own unit; by default the method's own."""
    confidence: float = Field(0.9, ge=0, lt=1)
    """rbp, rrbp, ibp: how sure one must be that the evidence for a channel is above or below its price; else it is
    undecided, and stays. 0: no doubt, the threshold decides as in the paper."""
    max_rise: float | None = Field(None, gt=0)
    """How many nats per example the training loss may be above that of the dense network after a cut; a cut is taken
    back to what that affords. By default a part of what the dense network explains, and no limit where a ratio decides.
    """
    macs_ratio: float | None = Field(None, ge=1)
    """Cut until the MACs are so many times fewer, along the method's ranking; some methods must be told."""
    params_ratio: float | None = Field(None, ge=1)
    """Cut until the parameters are so many times fewer."""
    latency_ratio: float | None = Field(None, ge=1)
    """Cut until a forward pass takes so many times less on the device of ``latency``."""
    latency: str | None = None
    """A table of what the layers of this network take on a device, written by ``rbprune calibrate``."""
    round_to: Literal["device"] | Annotated[int, Field(ge=1)] | None = None
    """Every site keeps a multiple of so many channels, or all of them; "device": what the table of ``latency`` found.
    """
    least: float = Field(0.1, ge=0, le=1)
    """The share of its channels that every layer keeps when a ratio decides; at least one channel stays."""
    compensate: Literal["none", "factors", "weights"] = "none"
    """How what a removed channel carried is given to those that stay: by new factors on them from the curvature over
    all factors (rbp, rrbp, ibp), or by a least-squares fit of the weights that read them."""
    blocks: bool = BLOCKS_BY_DEFAULT
    """rbp, rrbp, ibp: also judge the branches of residual blocks as a whole, in a stage of their own before the
    channels; a branch goes where its evidence is below what it costs."""
    downsampling: bool = False
    """rrbp: also prune the blocks whose shortcut is not the identity (the paper leaves them alone)."""
    sums: bool | None = None
    """Also prune the widths of residual sums: a channel then goes from everything that adds to the sum and everything
    that reads it. By default every sum that the method can judge; the paper leaves them alone."""
    options: dict[str, float] = {}
    """Settings of one method only; see docs/methods.md."""
    keep: list[str] = []
    """Modules whose outputs stay as they are."""
    only: list[str] | None = None
    """The only sites that may be pruned."""

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        given = [name for name in ("macs_ratio", "params_ratio", "latency_ratio") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} cannot both be met exactly: give one of them")
        return self

    @model_validator(mode="after")
    def _has_a_table(self) -> Self:
        per_us = self.price is not None and self.price.nats_per_us is not None
        asked = {
            f"latency_ratio = {self.latency_ratio}": self.latency_ratio is not None,
            "price.nats_per_us": per_us,
            'round_to = "device"': self.round_to == "device",
        }
        wants = [name for name, given in asked.items() if given]
        if wants and self.latency is None:
            raise ValueError(
                f"{wants[0]} needs to know how long the layers take: write a table with `rbprune calibrate MODEL --out "
                'device.json` on the device, and set latency = "device.json"'
            )
        return self

    @property
    def channel_step(self) -> int:
        """``round_to`` as a number, once "device" is resolved."""
        assert self.round_to != "device", "the pruner resolves it"
        return self.round_to or 1

    @property
    def ratio(self) -> tuple[Cost, float] | None:
        """The cost that has to fall, and how many times, where a ratio decides."""
        given = {name: getattr(self, f"{name}_ratio", None) for name in COSTS}
        return next(((COSTS[name], ratio) for name, ratio in given.items() if ratio is not None), None)

    @property
    def prunes_sums(self) -> bool:
        """``sums`` or, where it is not given, the default."""
        return SUMS_BY_DEFAULT if self.sums is None else self.sums

    @property
    def step_size(self) -> float:
        """``rate_lr`` or, where it is not given, the default for the way in which rates are found."""
        default = ADAM_RATE if self.rates == "adam" else FIXED_POINT_STEP
        return default if self.rate_lr is None else self.rate_lr


@dataclass(frozen=True)
class Target:
    """So much of a cost may be left."""

    cost: Cost
    limit: float
    step: int = 1
    """Every site keeps a multiple of so many channels, or all of them."""


@dataclass(frozen=True)
class StageContext:
    """What a stage is told: the settings of pruning, and the few values that follow from the network and its data."""

    dataset_size: int
    prices: ChannelPrices
    settings: PruningSettings = field(default_factory=PruningSettings)
    target: Target | None = None
    """Cut down to this, by the method's ranking, instead of where its threshold says."""
    later: tuple[str, ...] = ()
    """Where a target decides: the sites of the stages to come, which will do their part of it."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """For methods that take the share of channels to remove, that of each site."""
    likelihood: Likelihood | None = None
    """What the loss is a likelihood of, where it is known."""
    check: LossCheck | None = None
    """What cuts are measured by, where the dense network was measured."""
    limit: float = math.inf
    """The highest loss after a cut, in nats per example."""
    allowed: float = math.inf
    """By how much that is above the loss of the dense network."""
    scaled_prices: Callable[[float], ChannelPrices] | None = None
    """Where the price was left open and nobody has measured the network: the prices for what it explains."""
    dense: nn.Module | None = None
    """The network as it was before any cut, for methods that compare with it."""
