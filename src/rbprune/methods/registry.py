"""The methods by name: how each judges channels, and in which order it takes the sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rbprune.errors import ConfigError, UnprunableError, nearest
from rbprune.graph import ChannelGraph, Site
from rbprune.methods.bc import HorseshoeStage, JeffreysStage
from rbprune.methods.cp import CPStage
from rbprune.methods.dds import DDSBlocksStage, DDSStage
from rbprune.methods.ranking import L1, Random, Slimming, Taylor, UniformL1, lacks_scale
from rbprune.methods.rbp import DiracStage
from rbprune.methods.sbp import BMRSStage, SBPStage
from rbprune.methods.schedule import Schedule, at_once, by_depth, one_by_one
from rbprune.methods.settings import PruningSettings
from rbprune.methods.stage import Stage
from rbprune.methods.thinet import ThiNetStage
from rbprune.methods.torch_pruning import PeerBN, PeerGroup, PeerStage, PeerTaylor

Branches = Literal["no", "too", "only"]
Objection = Callable[[ChannelGraph, Site], str | None]
"""Says why a site cannot be judged; nothing where it can."""


def no_objection(graph: ChannelGraph, site: Site) -> str | None:
    """Any site can be judged."""
    return None


@dataclass(frozen=True)
class Method:
    """A way to prune: its name, the class of its stages, the order of the sites, and a line about it."""

    name: str
    stage: type[Stage]
    schedule: Schedule
    summary: str
    skip_downsampling: bool = False
    """Leave alone the blocks whose shortcut is not the identity (the paper's RRBP does)."""
    branches: Branches = "no"
    """Whether it judges whole branches of residual blocks: never, too (``prune.blocks``), or nothing else."""
    objection: Objection = no_objection
    """Which sites it cannot judge: a run that would come to one is refused before it begins."""
    functions: bool = False
    """Whether it judges channels that only a function reads (``F.conv2d(x, self.kernel)``), no module."""

    def reaches(self, graph: ChannelGraph, site: Site) -> bool:
        """Whether it can judge a site by those that read it."""
        return bool(site.consumers) and (self.functions or all(map(graph.is_module, site.consumers)))

    def check_options(self, options: Mapping[str, float]) -> None:
        """Refuse ``prune.options`` that the method does not have."""
        known = self.stage.options
        unknown = [name for name in options if name not in known]
        if unknown:
            has = f"it has: {', '.join(known)}" if known else "it has none"
            raise ConfigError(
                f"prune.options.{unknown[0]} is no option of {self.name!r}{nearest(unknown[0], known)}; {has}"
            )


METHODS: dict[str, Method] = {}


def register_method(
    name: str,
    stage: type[Stage],
    schedule: Schedule = at_once,
    summary: str = "",
    *,
    skip_downsampling: bool = False,
    branches: Branches = "no",
    objection: Objection = no_objection,
    functions: bool = False,
) -> None:
    """Make a method known by name, for ``method=`` and ``--method``.

    ``objection(graph, site)`` says in words why the method cannot judge a site, and nothing where it can: a run that
    would come to such a site is refused before it begins. With ``functions`` it judges channels that only a function
    reads, with no module that could be hooked; else they are left alone.

    >>> import torch
    >>> from rbprune.methods import Verdict
    >>> class EverySecond(Stage):
    ...     trains = False
    ...     def judge(self):
    ...         odd = {site.name: torch.arange(site.channels) % 2 for site in self.sites}
    ...         return {name: Verdict(value.float(), value == 1) for name, value in odd.items()}
    >>> register_method("every-second", EverySecond, summary="every second channel")
    >>> METHODS.pop("every-second").summary
    'every second channel'
    """
    METHODS[name] = Method(name, stage, schedule, summary, skip_downsampling, branches, objection, functions)


register_method(
    "rbp",
    DiracStage,
    one_by_one,
    "recursive Bayesian pruning (the paper), layer by layer",
    branches="too",
    functions=True,
)
register_method(
    "rrbp",
    DiracStage,
    by_depth,
    "the same for residual networks: the k-th layers of all blocks at once",
    skip_downsampling=True,
    branches="too",
    functions=True,
)
register_method("ibp", DiracStage, at_once, "the paper's ablation: all layers at once", branches="too", functions=True)

register_method("bc", HorseshoeStage, at_once, "Bayesian Compression with a group horseshoe prior")
register_method("bc-gnj", JeffreysStage, at_once, "Bayesian Compression with a normal-Jeffreys prior")
register_method("rbc", HorseshoeStage, one_by_one, "Bayesian Compression (horseshoe) layer by layer")
register_method(
    "sbp", SBPStage, at_once, "Structured Bayesian Pruning: log-normal noise, signal-to-noise ratio", functions=True
)
register_method("bmrs", BMRSStage, at_once, "Bayesian model reduction on the noise of sbp", functions=True)
register_method("thinet", ThiNetStage, one_by_one, "channels that the next layer misses least, found greedily")
register_method("cp", CPStage, one_by_one, "channels chosen by the lasso, the next layer's weights fitted anew")
register_method(
    "dds", DDSStage, at_once, "data-driven sparse structure selection: scales under an L1 penalty", functions=True
)
register_method("dds-blocks", DDSBlocksStage, at_once, "the same for whole residual blocks", branches="only")
register_method("l1", L1, at_once, "filters of least L1 norm, one ranking over all layers", functions=True)
register_method(
    "uniform", UniformL1, at_once, "filters of least L1 norm, the same share of every layer", functions=True
)
register_method("taylor", Taylor, at_once, "channels of least first-order effect on the loss", functions=True)
register_method(
    "slimming", Slimming, at_once, "L1 on batch normalisation, the smallest scales go", objection=lacks_scale
)
register_method("random", Random, at_once, "any channels, the same share of every layer", functions=True)

register_method("tp-magnitude", PeerStage, at_once, "torch-pruning: magnitude, the same share of every layer")
register_method("tp-taylor", PeerTaylor, at_once, "torch-pruning: group Taylor")
register_method("tp-bn", PeerBN, at_once, "torch-pruning: scales of batch normalisation after sparse training")
register_method("tp-group", PeerGroup, at_once, "torch-pruning: group norm after sparse training")


def find_method(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}{nearest(name, METHODS)}; known are {', '.join(METHODS)}")
    return METHODS[name]


def schedule_sites(graph: ChannelGraph, settings: PruningSettings) -> list[list[str]]:
    """The names of the sites of each stage; the widths of residual sums are among them where ``sums`` says so."""
    found = find_method(settings.method)
    wanted = None if settings.only is None else {graph[name].name for name in settings.only}
    sites = [s for s in graph.sites if s.residual != "sum" or settings.prunes_sums]
    sites = [s for s in sites if wanted is None or s.name in wanted]
    if settings.sums and not found.functions:
        _refuse_unreachable_sums(graph, sites)
    sites = [s for s in sites if found.reaches(graph, s)]
    if settings.sums is None:  # nobody asked for the sums: one that the method cannot judge stays
        sites = [s for s in sites if s.residual != "sum" or not found.objection(graph, s)]
    if found.skip_downsampling and not settings.downsampling:
        sites = [s for s in sites if not s.downsample]
    stages = found.schedule(sites)
    if not stages:
        frozen = "; ".join(f"{name}: {reason}" for name, reason in list(graph.frozen.items())[:3])
        hint = "it needs residual blocks, try method='rbp'" if found.schedule is by_depth else f"frozen: {frozen}"
        raise UnprunableError(
            f"method {settings.method!r} finds nothing to prune in this {type(graph.model).__name__}; {hint}"
        )
    for site in (site for stage in stages for site in stage):
        if reason := found.objection(graph, site):
            raise UnprunableError(f"{reason}; choose sites with prune.only, or take another method")
    return [[site.name for site in stage] for stage in stages]


def _refuse_unreachable_sums(graph: ChannelGraph, sites: Sequence[Site]) -> None:
    """Refuse to prune the sums where one of them has a reader on whose input no factor can be put.

    A factor on some readers alone would judge another network than the one that the cut leaves.
    """
    for site in sites:
        readers = [name for name in site.consumers if not graph.is_module(name)]
        if site.residual == "sum" and readers:
            raise UnprunableError(
                f"the residual sum {site.name!r} cannot be judged: it is read by {', '.join(map(repr, readers))}, "
                "which is no module whose input a factor can multiply; write that layer as nn.Conv2d or nn.Linear, "
                f"keep the sum with prune.keep=[{site.producers[0]!r}], or leave all sums alone with prune.sums=false"
            )
