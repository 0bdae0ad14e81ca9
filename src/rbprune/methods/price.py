"""The price of a channel: how much evidence, in nats over the training set, it must bring to stay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, Site

MIN_NATS = 1.0
"""Below this the prior is wider than the noise and its optimum leaves the neighbourhood of r = 1."""


@dataclass(frozen=True)
class Price:
    """Either the same for every channel (the paper: 20), or in proportion to the computation it costs.

    With ``nats_per_mmac`` a channel's price is that many nats for each million MACs that would disappear from the
    *current* network with it (its filter, its column in every consumer): an early, expensive channel must bring more
    evidence than a late, cheap one.

    >>> Price(nats=20)
    Price(nats=20, nats_per_mmac=None)
    """

    nats: float | None = None
    nats_per_mmac: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.nats, self.nats_per_mmac) if value is not None]
        if len(given) != 1 or not given[0] > 0:
            raise ConfigError(f"a price is one positive number, nats or nats_per_mmac; this is {self}")

    def of(self, graph: ChannelGraph, site: Site) -> Tensor:
        """Nats for each channel of ``site`` in the network as it is now."""
        if self.nats is not None:
            value = self.nats
        else:
            assert self.nats_per_mmac is not None
            value = self.nats_per_mmac * graph.macs_per_channel(site) / 1e6
        return torch.full((site.channels,), max(value, MIN_NATS))
