"""Everyday baselines: a score per channel, and a cut where the MACs asked for are reached."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rbprune.graph import ChannelGraph, Site
from rbprune.graph.sites import Part
from rbprune.methods.channel_factor import ChannelFactor, Gates
from rbprune.methods.cost_target import rank_within_site
from rbprune.methods.numerics import importance
from rbprune.methods.settings import StageContext
from rbprune.methods.stage import Stage
from rbprune.methods.verdict import Verdict
from rbprune.utils import processes


class RankStage(Stage):
    """Base of the methods that rank: they give ``score``, and the lowest scores go.

    Scores are compared over all sites; with ``uniform`` only within a site, which loses the same share everywhere.
    """

    diagnostic = "minus score"
    needs_ratio = True
    trains = False
    uniform = False

    def score(self, site: Site) -> Tensor:
        """How much each channel of a site matters."""
        raise NotImplementedError

    def judge(self) -> dict[str, Verdict]:
        verdicts = {}
        for site in self.sites:
            value = -self.score(site).detach().cpu().double()
            value = rank_within_site(value) if self.uniform else value
            verdicts[site.name] = Verdict(value, torch.zeros(len(value), dtype=torch.bool))
        return verdicts


def filter_norms(graph: ChannelGraph, site: Site) -> Tensor:
    """L1 norm of the filters that make each channel, over all producers."""
    return sum((importance.l1(rows) for rows in _filters(graph, site)), torch.zeros(()))


def _filters(graph: ChannelGraph, site: Site) -> Iterable[Tensor]:
    for part in site.parts:
        if part.role == "out":
            weight, dim = graph.weight_along(part)
            places = graph.places(site, part).to(weight.device)
            yield weight.detach().movedim(dim, 0)[places]


class L1(RankStage):
    """One ranking over all layers: a filter's L1 norm over the mean of its layer."""

    def score(self, site: Site) -> Tensor:
        norms = filter_norms(self.graph, site)
        return norms / norms.mean().clamp_min(torch.finfo(norms.dtype).tiny)  # a layer may be all zero


class UniformL1(RankStage):
    """The same share of every layer, the filters of least L1 norm first (Li et al. 2017): the plainest rival."""

    uniform = True

    def score(self, site: Site) -> Tensor:
        return filter_norms(self.graph, site)


class Random(RankStage):
    """The same share of every layer, any channels: drawn when the stage begins, so by the seed of the run."""

    uniform = True

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        self._scores = {site.name: torch.rand(site.channels) for site in self.sites}

    def score(self, site: Site) -> Tensor:
        return self._scores[site.name]


class UnitFactor(ChannelFactor):
    """Factors that are all 1: only their gradient is of interest."""

    draws_once = True

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(channels))
        self.drawn: Tensor | None = None

    def draw(self, rows: int) -> Tensor | None:
        self.drawn = None
        if not torch.is_grad_enabled():
            return None
        self.drawn = self.one.expand(rows, -1).clone()
        self.drawn.retain_grad()
        return self.drawn

    def mean(self) -> Tensor:
        return self.one


class Taylor(RankStage):
    """First-order change of the loss without a channel, |z dC/dz| averaged over examples (Molchanov et al. 2017).

    z enters through a factor of 1 on the channel, so z dC/dz summed over places is the gradient of that factor.
    """

    observes = True

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        self._scores = torch.zeros(sum(site.channels for site in self.sites))
        self.factors = UnitFactor(len(self._scores)).to(next(graph.model.parameters()).device)
        self.gates = Gates(graph, self.sites, self.factors, always=True)

    def before_step(self) -> None:
        drawn = self.factors.drawn
        if drawn is not None and drawn.grad is not None:
            self._observed = True
            self._scores += drawn.grad.abs().mean(0).cpu() * len(drawn)
            self.factors.one.grad = self.factors.drawn = None

    def detach(self) -> None:
        self.gates.detach()

    def score(self, site: Site) -> Tensor:
        return importance.normalised(self.split(processes.mean(self._scores))[site.name])


def scaling_norms(graph: ChannelGraph, site: Site) -> list[tuple[Part, _BatchNorm]]:
    """The batch normalisations that carry the channels of a site and scale them, each with its part of the site."""
    along = [part for part in site.parts if part.role == "along" and graph.is_module(part.owner)]
    modules = [(part, graph.module(part.owner)) for part in along]  # a parameter or buffer by itself is no norm
    return [(part, module) for part, module in modules if isinstance(module, _BatchNorm) and module.affine]


def lacks_scale(graph: ChannelGraph, site: Site) -> str | None:
    """Why slimming cannot judge a site, where it cannot."""
    if scaling_norms(graph, site):
        return None
    return f"slimming ranks by batch normalisation, and site {site.name!r} has none"


class Slimming(RankStage):
    """An L1 penalty on the scales of batch normalisation while training; the smallest scales go (Liu et al. 2017)."""

    trains = True
    diagnostic = "minus |gamma|"
    options = ("l1",)

    def _gammas(self, site: Site) -> Tensor:
        """The size of the scale of each channel in every batch normalisation that carries it: [norms, channels]."""
        found = []
        for part, module in scaling_norms(self.graph, site):
            places = self.graph.places(site, part).to(module.weight.device)
            found.append(module.weight[places].abs().sum(1))
        return torch.stack(found)

    def penalty(self) -> Tensor:
        strength = self.settings.options.get("l1", 1e-4)
        return strength * torch.stack([self._gammas(site).sum() for site in self.sites]).sum()

    def score(self, site: Site) -> Tensor:
        return self._gammas(site).mean(0)  # the mean, for sites are compared whose numbers of norms differ
