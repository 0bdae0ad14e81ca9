"""The price of a channel: how much evidence, in nats over the training set, it must bring to stay."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, Site

MIN_NATS = 20.0
"""A price that follows the computation does not fall below the paper's own, unless told to: with a wider prior the
rates of cheap channels no longer end near 0 or 1."""


@dataclass(frozen=True)
class Price:
    """One of three ways to say what a channel must bring to stay.

    - ``nats``: the same for every channel (the paper: 20, which is eps^2 = 0.025).
    - ``nats_per_mmac``: that many nats for each million MACs that would disappear from the *current* network with the
      channel (its filter, its column in every consumer), so that an early, expensive channel must bring more evidence
      than a late, cheap one.
    - ``nats_per_example``: the same, in a unit that does not depend on the size of network and data: all MACs of the
      dense network together cost this many nats per training example.

    Beside one of the last two, ``nats`` is the least that any channel costs (20 if it is not given). Late layers have
    many weights and few MACs: a higher floor makes the network small, not only fast. ``power`` (1 if it is not given)
    makes the price follow that power of the MACs, with the mean channel of the dense network at the same price: above
    1, dear channels cost still more.

    >>> Price(nats=20)
    Price(nats=20)
    >>> Price(nats_per_example=1.5, nats=100)
    Price(nats=100, nats_per_example=1.5)
    """

    nats: float | None = None
    nats_per_mmac: float | None = None
    nats_per_example: float | None = None
    power: float | None = None
    typical: float | None = field(default=None, repr=False)
    """MACs of the mean channel of the dense network, once it is resolved."""

    def __post_init__(self) -> None:
        given = self.to_dict()
        if not given or (self.nats_per_mmac and self.nats_per_example) or min(given.values()) <= 0:
            ways = "nats, nats_per_mmac or nats_per_example, and nats beside one of the others as the least price"
            raise ConfigError(f"a price is a positive number: {ways}; this is {self}")
        if self.power is not None and self.nats_per_mmac is None and self.nats_per_example is None:
            raise ConfigError(f"power says how a price follows MACs: give it beside one that does; this is {self}")

    def to_dict(self) -> dict[str, float]:
        """What was given, as ``prune.price`` of a recipe has it.

        >>> Price(nats_per_example=1.5, nats=100).to_dict()
        {'nats': 100, 'nats_per_example': 1.5}
        """
        return {key: value for key, value in vars(self).items() if value is not None and key != "typical"}

    def __repr__(self) -> str:
        return f"Price({', '.join(f'{key}={value!r}' for key, value in self.to_dict().items())})"

    def resolve(self, graph: ChannelGraph, dataset_size: int) -> Price:
        """The same price, free of the dense network's size; to be called before anything is removed."""
        if self.nats_per_example is None and self.power is None:
            return self
        per_mmac = self.nats_per_mmac
        if self.nats_per_example is not None:
            per_mmac = self.nats_per_example * dataset_size / (graph.macs() / 1e6)
        macs = [graph.macs_per_channel(site) * site.channels for site in graph.sites]
        typical = sum(macs) / sum(site.channels for site in graph.sites) if macs else 1.0
        return Price(nats_per_mmac=per_mmac, nats=self.nats, power=self.power, typical=typical)

    def of(self, graph: ChannelGraph, site: Site) -> Tensor:
        """Nats for each channel of ``site`` in the network as it is now."""
        if self.nats_per_mmac is not None and (self.power is None or self.typical is not None):
            least, macs = MIN_NATS if self.nats is None else self.nats, graph.macs_per_channel(site)
            steep = 1.0 if self.power is None or self.typical is None else (macs / self.typical) ** (self.power - 1)
            value = max(least, self.nats_per_mmac * macs / 1e6 * steep)
        elif self.nats is not None and self.nats_per_example is None and self.power is None:
            value = self.nats
        else:
            raise ConfigError(f"{self} must be resolved against the dense network first")
        return torch.full((site.channels,), value)
