"""The price of a channel: how much evidence, in nats over the training set, it must bring to stay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, Site

MIN_NATS = 20.0
"""A price that follows the computation never falls below the paper's own: with a wider prior the rates of cheap
channels no longer end near 0 or 1."""


@dataclass(frozen=True)
class Price:
    """Exactly one of three ways to say what a channel must bring to stay.

    - ``nats``: the same for every channel (the paper: 20, which is eps^2 = 0.025).
    - ``nats_per_mmac``: that many nats for each million MACs that would disappear from the *current* network with the
      channel (its filter, its column in every consumer), so that an early, expensive channel must bring more evidence
      than a late, cheap one.
    - ``nats_per_example``: the same, in a unit that does not depend on the size of network and data: all MACs of the
      dense network together cost this many nats per training example.

    >>> Price(nats=20)
    Price(nats=20)
    """

    nats: float | None = None
    nats_per_mmac: float | None = None
    nats_per_example: float | None = None

    def __post_init__(self) -> None:
        if len(self._given()) != 1 or not all(value > 0 for value in self._given().values()):
            raise ConfigError(f"a price is one positive number: {', '.join(vars(self))}; this is {self}")

    def _given(self) -> dict[str, float]:
        return {key: value for key, value in vars(self).items() if value is not None}

    def __repr__(self) -> str:
        return f"Price({', '.join(f'{key}={value!r}' for key, value in self._given().items())})"

    def resolve(self, graph: ChannelGraph, dataset_size: int) -> Price:
        """The same price, free of the dense network's size; to be called before anything is removed."""
        if self.nats_per_example is None:
            return self
        return Price(nats_per_mmac=self.nats_per_example * dataset_size / (graph.macs() / 1e6))

    def of(self, graph: ChannelGraph, site: Site) -> Tensor:
        """Nats for each channel of ``site`` in the network as it is now."""
        if self.nats is not None:
            value = self.nats
        elif self.nats_per_mmac is not None:
            value = max(MIN_NATS, self.nats_per_mmac * graph.macs_per_channel(site) / 1e6)
        else:
            raise ConfigError(f"{self} must be resolved against the dense network first")
        return torch.full((site.channels,), value)
