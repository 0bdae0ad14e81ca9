"""The price of a channel: how much evidence, in nats over the training set, it must bring to stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rbprune.graph import ChannelGraph, Site
from rbprune.graph.cost import LATENCY, MACS, PARAMS, Cost
from rbprune.graph.layer_shares import channels_within
from rbprune.utils.section import Section

MIN_NATS = 20.0
"""A price that follows a cost does not fall below the paper's own, unless told to: with a wider prior the rates of
cheap channels no longer end near 0 or 1."""
MIN_SHARE = 0.25
"""A price that was left open: nor below this part of the mean channel's price, where that is less."""
PRICE_SHARE = 0.87
"""What the whole network costs by default, as a part of what it explains: 2 nats for one that is sure of ten classes.
"""


class Price(Section):
    """What a channel must bring to stay, said in one of these ways.

    - ``nats``: the same for every channel (the paper: 20, which is eps^2 = 0.025).
    - ``nats_per_mmac``: that many nats for each million MACs that would disappear from the *current* network with the
      channel (its filter, its column in every consumer), so that an early, expensive channel must bring more evidence
      than a late, cheap one.
    - ``nats_per_mparam``: the same for each million parameters.
    - ``nats_per_us``: the same for each microsecond of a forward pass, by a table that was measured on a device.
    - ``nats_per_example``: in a unit that does not depend on the size of network and data: all MACs of the dense
      network together cost this many nats per training example.

    Beside one of the last four, ``nats`` is the least that any channel costs (20 if it is not given). Late layers have
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
    nats_per_us: float | None = Field(None, gt=0)
    nats_per_example: float | None = Field(None, gt=0)
    power: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _is_one_price(self) -> Self:
        following = [v for v in (*self._per_million(), self.nats_per_example) if v is not None]
        if len(following) > 1 or (not following and self.nats is None):
            raise ValueError(
                "a price is one of nats, nats_per_mmac, nats_per_mparam, nats_per_us or nats_per_example (and nats "
                "beside one of the others as the least price)"
            )
        if self.power is not None and not following:
            raise ValueError("power says how a price follows a cost: give it beside nats_per_mmac or nats_per_example")
        return self

    def __repr_args__(self) -> Any:
        return [(name, _Figure(value)) for name, value in self.model_dump(exclude_none=True).items()]

    @property
    def cost(self) -> Cost:
        """The cost that the price follows."""
        if self.nats_per_us is not None:
            return LATENCY
        return MACS if self.nats_per_mparam is None else PARAMS

    def _per_million(self) -> tuple[float | None, float | None, float | None]:
        """Nats for a million of a cost, one for each cost that a price can follow directly."""
        per_us = None if self.nats_per_us is None else 1e6 * self.nats_per_us
        return self.nats_per_mmac, self.nats_per_mparam, per_us

    def resolve(self, graph: ChannelGraph, dataset_size: int) -> ChannelPrices:
        """What it comes to for this network and data; to be called before anything is removed."""
        cost = self.cost
        per_million = next((value for value in self._per_million() if value is not None), None)
        if self.nats_per_example is not None:
            per_million = self.nats_per_example * dataset_size / (cost.total(graph) / 1e6)
        if per_million is None:
            assert self.nats is not None
            return ChannelPrices(cost, self.nats)
        least = MIN_NATS if self.nats is None else self.nats
        return ChannelPrices(cost, least, per_million, self.power or 1.0, _typical_cost(graph, cost))


class _Figure(float):
    """A number that prints without a needless ``.0``."""

    def __repr__(self) -> str:
        return f"{float(self):.12g}"


@dataclass(frozen=True)
class ChannelPrices:
    """A price that knows the dense network: nats for the channels of any site of what is left of it.

    A channel of cost c costs max(least, per_million * c / 10^6 * (c / typical)^(power - 1)) nats. A whole branch costs
    what it saves at the same price, and no less than ``least`` for each channel that is made inside of it.
    """

    cost: Cost
    least: float
    per_million: float = 0.0
    power: float = 1.0
    typical: float = 1.0
    """The cost of the mean channel of the dense network."""

    def of(self, graph: ChannelGraph, site: Site) -> Tensor:
        """Nats for each channel of ``site`` in the network as it is now."""
        within = channels_within(graph, site)
        value = self.least * within
        if self.per_million:
            cost = self.cost.per_channel(graph, site)
            steepness = 1.0 if self.power == 1.0 else (cost / within / self.typical) ** (self.power - 1)
            value = max(value, self.per_million * cost / 1e6 * steepness)
        return torch.full((site.channels,), value)

    def of_all(self, graph: ChannelGraph, sites: Sequence[Site]) -> Tensor:
        """Nats for each channel of some sites, one after another."""
        return torch.cat([self.of(graph, site) for site in sites])


@dataclass(frozen=True)
class DefaultPrice:
    """The price where none was given: it follows what the network explains, and knows the dense network.

    The whole network costs a fixed part of the nats per example that it explains, ``PRICE_SHARE``; the least price of a
    channel is ``MIN_NATS`` or, where little data has few nats to tell of, a part of that of the mean channel.
    """

    dataset_size: int
    macs: float
    typical: float
    """The MACs of the mean channel."""

    @classmethod
    def of(cls, graph: ChannelGraph, dataset_size: int) -> DefaultPrice:
        """To be called before anything is removed."""
        return cls(dataset_size, MACS.total(graph), _typical_cost(graph, MACS))

    def price(self, explained: float) -> Price:
        """For a network that explains so many nats per example.

        >>> DefaultPrice(50_000, macs=1e6, typical=4e3).price(2.3)
        Price(nats_per_example=2)
        >>> DefaultPrice(500, macs=1e6, typical=4e3).price(2.3)
        Price(nats=1, nats_per_example=2)
        """
        nats = float(f"{PRICE_SHARE * max(explained, 1e-6):.3g}")
        least = MIN_SHARE * nats * self.dataset_size * self.typical / self.macs
        return Price(nats_per_example=nats, nats=None if least >= MIN_NATS else float(f"{least:.3g}"))

    def resolve(self, price: Price) -> ChannelPrices:
        """What such a price comes to."""
        assert price.nats_per_example is not None
        per_million = price.nats_per_example * self.dataset_size / (self.macs / 1e6)
        return ChannelPrices(MACS, price.nats or MIN_NATS, per_million, typical=self.typical)


def _typical_cost(graph: ChannelGraph, cost: Cost) -> float:
    """The cost of the mean channel."""
    channels = sum(site.channels for site in graph.sites)
    whole = sum(cost.per_channel(graph, site) * site.channels for site in graph.sites)
    return whole / channels if channels else 1.0
