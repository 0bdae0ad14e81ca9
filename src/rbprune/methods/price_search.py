"""The price that leads to a target, found while the rates are: nobody has to guess it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rbprune.bayes import dirac
from rbprune.graph import ChannelGraph, Site
from rbprune.methods.channel_factor import ChannelFactor, Gates
from rbprune.methods.cost_target import boundary
from rbprune.methods.curvature import RunningCurvature
from rbprune.methods.dirac_noise import FIRST
from rbprune.methods.price import ChannelPrices
from rbprune.methods.settings import Target

PULL = 0.2
"""How far the price goes to its new value with each update."""
_CHEAPEST = 1e-6
"""The lowest price, as a part of the given one: it cannot be nothing where dead channels alone bring what is needed."""


class PriceSearch(ChannelFactor):
    """Ranks the channels of later sites beside those of the stage, and scales the price to where the target is reached.

    Later sites get factors of exactly 1, which change nothing, so that an update sees their curvature too: how they
    would rank if they were judged today. When their own turn comes, noise on the redundant channels will make the
    others more needed than they look today. By how much is told by the stage's own channels, which are going through
    it. Whole branches tell nothing about channels: their noise is far coarser.
    """

    draws_once = True

    def __init__(
        self,
        graph: ChannelGraph,
        own: Sequence[Site],
        later: Sequence[Site],
        prices: ChannelPrices,
        target: Target,
        least: float,
        update_is_due: Callable[[], bool],
    ) -> None:
        super().__init__()
        self.graph, self.own, self.later, self.target, self.least = graph, own, later, target, least
        self.set_prices(prices)
        self._update_is_due = update_is_due
        alike = [site.keeps_one == own[0].keeps_one for site in later for _ in range(site.channels)]
        self._alike = torch.tensor(alike, dtype=torch.bool)  # channels beside channels, or branches beside branches
        self.drawn: Tensor | None = None
        self.curvature = RunningCurvature(sum(site.channels for site in later))
        self.first: Tensor
        self.scale: Tensor
        self.undisturbed: Tensor
        self.register_buffer("first", torch.zeros(sum(site.channels for site in own)))
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("undisturbed", torch.ones(()))  # the price factor before there was much noise
        self.gates = Gates(graph, list(later), self) if later else None

    def set_prices(self, prices: ChannelPrices) -> None:
        """The price as it is given."""
        self.nats = prices.of_all(self.graph, (*self.own, *self.later))

    @property
    def price_factor(self) -> Tensor:
        """How many times the given price; 1 before anything was seen."""
        return torch.where(self.scale > 0, self.scale, 1.0)

    def draw(self, rows: int) -> Tensor | None:
        self.drawn = None
        if torch.is_grad_enabled() and self._update_is_due():
            size = len(self.curvature.running)
            self.drawn = torch.ones(rows, size, device=self.scale.device, requires_grad=True)
        return self.drawn

    def mean(self) -> None:
        return None

    def update(self, own: Tensor, later: Tensor, updates: int) -> None:
        """Scale the price to what the curvatures say after another update of them."""
        if updates <= FIRST:
            self.first.copy_(own)
        wanted = max(_CHEAPEST, 1 - boundary(self.graph, self.ranks(own, later), self.target, self.least))
        if updates <= FIRST:
            self.undisturbed.fill_(wanted)
        before = float(self.scale) or wanted
        self.scale.fill_(before ** (1 - PULL) * wanted**PULL)

    def ranks(self, own: Tensor, later: Tensor) -> dict[str, Tensor]:
        """What the channels of each site, own and later, fail to earn of the price as it was given."""
        grown = torch.where(self._alike, self._growth(own), 1.0) * later.cpu()
        earned = torch.cat([own.cpu(), grown]) * dirac.eps2_from_nats(self.nats)
        sites = (*self.own, *self.later)
        parts = (1 - earned).split([site.channels for site in sites])
        return {site.name: part for site, part in zip(sites, parts, strict=True)}

    def _growth(self, own: Tensor) -> float:
        """How much more needed the channels that stay have become since the noise began, on average."""
        stay = own.cpu() * dirac.eps2_from_nats(self.nats[: len(own)]) >= self.scale.cpu()
        before, now = float(self.first.cpu()[stay].sum()), float(own.cpu()[stay].sum())
        return max(1.0, now / before) if before > 0 else 1.0

    def detach(self) -> None:
        """Take the factors off the model."""
        if self.gates is not None:
            self.gates.detach()
