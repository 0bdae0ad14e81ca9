"""The price of a channel: how much evidence, in nats over the training set, it must bring to stay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rbprune.graph import ChannelGraph, Site
from rbprune.graph.cost import MACS, PARAMS, Cost
from rbprune.utils.section import Section

MIN_NATS = 20.0
"""A price that follows a cost does not fall below the paper's own, unless told to: with a wider prior the rates of
cheap channels no longer end near 0 or 1."""
DEFAULT_NATS_PER_EXAMPLE = 2.0
"""What the dense network of a classifier of ten classes costs by default."""


class Price(Section):
    """What a channel must bring to stay, said in one of these ways.

    - ``nats``: the same for every channel (the paper: 20, which is eps^2 = 0.025).
    - ``nats_per_mmac``: that many nats for each million MACs that would disappear from the *current* network with the
      channel (its filter, its column in every consumer), so that an early, expensive channel must bring more evidence
      than a late, cheap one.
    - ``nats_per_mparam``: the same for each million parameters.
    - ``nats_per_example``: in a unit that does not depend on the size of network and data: all MACs of the dense
      network together cost this many nats per training example.

    Beside one of the last three, ``nats`` is the least that any channel costs (20 if it is not given). Late layers have
    many weights and few MACs: a higher floor makes the network small, not only fast. ``power`` (1 if it is not given)
    makes the price follow that power of the cost, with the mean channel of the dense network at the same price: above
    1, dear channels cost still more.

    >>> Price(nats=20)
    Price(nats=20)
    >>> Price(nats_per_example=1.5, nats=100)
    Price(nats=100, nats_per_example=1.5)
    """

    nats: float | None = Field(None, gt=0)
    nats_per_mmac: float | None = Field(None, gt=0)
    nats_per_mparam: float | None = Field(None, gt=0)
    nats_per_example: float | None = Field(None, gt=0)
    power: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _is_one_price(self) -> Self:
        following = [v for v in (self.nats_per_mmac, self.nats_per_mparam, self.nats_per_example) if v is not None]
        if len(following) > 1 or (not following and self.nats is None):
            raise ValueError(
                "a price is one of nats, nats_per_mmac, nats_per_mparam or nats_per_example (and nats beside one of "
                "the others as the least price)"
            )
        if self.power is not None and not following:
            raise ValueError("power says how a price follows a cost: give it beside nats_per_mmac or nats_per_example")
        return self

    def __repr_args__(self) -> Any:
        return [(name, _Figure(value)) for name, value in self.model_dump(exclude_none=True).items()]

    @property
    def cost(self) -> Cost:
        """The cost that the price follows."""
        return MACS if self.nats_per_mparam is None else PARAMS

    def resolve(self, graph: ChannelGraph, dataset_size: int) -> ChannelPrices:
        """What it comes to for this network and data; to be called before anything is removed."""
        cost = self.cost
        per_million = self.nats_per_mmac if self.nats_per_mparam is None else self.nats_per_mparam
        if self.nats_per_example is not None:
            per_million = self.nats_per_example * dataset_size / (cost.total(graph) / 1e6)
        if per_million is None:
            assert self.nats is not None
            return ChannelPrices(cost, self.nats)
        least = MIN_NATS if self.nats is None else self.nats
        channels = sum(site.channels for site in graph.sites)
        whole = sum(cost.per_channel(graph, site) * site.channels for site in graph.sites)
        return ChannelPrices(cost, least, per_million, self.power or 1.0, whole / channels if channels else 1.0)


class _Figure(float):
    """A number that prints without a needless ``.0``."""

    def __repr__(self) -> str:
        return f"{float(self):.12g}"


@dataclass(frozen=True)
class ChannelPrices:
    """A price that knows the dense network: nats for the channels of any site of what is left of it.

    A channel of cost c costs max(least, per_million * c / 10^6 * (c / typical)^(power - 1)) nats.
    """

    cost: Cost
    least: float
    per_million: float = 0.0
    power: float = 1.0
    typical: float = 1.0
    """The cost of the mean channel of the dense network."""

    def of(self, graph: ChannelGraph, site: Site) -> Tensor:
        """Nats for each channel of ``site`` in the network as it is now."""
        value = self.least
        if self.per_million:
            cost = self.cost.per_channel(graph, site)
            steepness = 1.0 if self.power == 1.0 else (cost / self.typical) ** (self.power - 1)
            value = max(self.least, self.per_million * cost / 1e6 * steepness)
        return torch.full((site.channels,), value)


def default_price(classes: int | None) -> Price:
    """2 nats per example, less for fewer than ten classes: an example holds at most log(classes) nats of evidence, and
    the price of the whole network keeps its proportion to that.

    >>> default_price(None), default_price(2)
    (Price(nats_per_example=2), Price(nats_per_example=0.6))
    """
    share = 1.0 if classes is None else min(1.0, math.log(classes) / math.log(10))
    return Price(nats_per_example=round(DEFAULT_NATS_PER_EXAMPLE * share, 2))
