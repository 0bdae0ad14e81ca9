"""One stage of inference: noise on some sites, their rates trained with the network, then the cut."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rbprune.bayes import dirac
from rbprune.graph import ChannelGraph
from rbprune.methods.noise import ChannelNoise
from rbprune.methods.price import Price
from rbprune.methods.recalibrate import recalibrate

UNDECIDED = (0.1, 0.9)
"""A rate in this range is near neither 0 nor 1."""

_RECENT_BATCHES, _RECENT_BYTES = 16, 1 << 28


@dataclass(frozen=True)
class StageResult:
    """What a finished stage did: rates as inferred, channels before and after, sites where a channel was spared."""

    rates: dict[str, Tensor]
    channels: dict[str, tuple[int, int]]
    undecided: dict[str, float]
    price: dict[str, tuple[float, float]]
    guarded: list[str]


class Stage:
    """Made by ``Pruner``; see there for the loop."""

    def __init__(
        self,
        graph: ChannelGraph,
        names: list[str],
        *,
        dataset_size: int,
        price: Price,
        noise: Literal["example", "batch"] = "example",
        threshold: float = 0.5,
        rate_init: float = dirac.RATE_INIT,
        remember: bool = True,
    ) -> None:
        self.graph, self.names, self.dataset_size, self.threshold = graph, names, dataset_size, threshold
        sites = [graph[name] for name in names]
        nats = [price.of(graph, site) for site in sites]
        self.price = {site.name: (float(n.min()), float(n.max())) for site, n in zip(sites, nats, strict=True)}
        self.noise = ChannelNoise(graph, sites, rate=rate_init, per=noise)
        self.eps2 = dirac.eps2_from_nats(torch.cat(nats)).to(self.noise.rate.device)
        self.result: StageResult | None = None
        self._recent: deque[tuple[Any, ...]] = deque(maxlen=_RECENT_BATCHES if remember else 0)
        self._watch = graph.model.register_forward_pre_hook(self._remember)

    @property
    def rates(self) -> dict[str, Tensor]:
        """The rates r of each site, as they are now."""
        return {name: self.noise.rate.detach()[where] for name, where in self.noise.slices.items()}

    def _remember(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._recent.maxlen and module.training and torch.is_grad_enabled():
            size = sum(a.numel() * a.element_size() for a in args if isinstance(a, Tensor))
            while self._recent and size * (len(self._recent) + 1) > _RECENT_BYTES:
                self._recent.popleft()
            self._recent.append(args)

    def param_groups(self, lr: float, rate_lr: float, **options: Any) -> list[dict[str, Any]]:
        """Groups for an optimizer: the network's weights, and the rates (never decayed)."""
        weights = [p for p in self.graph.model.parameters() if p.requires_grad]
        return [
            {"params": weights, "lr": lr, **options},
            {"params": [self.noise.rate], "lr": rate_lr, "weight_decay": 0.0},
        ]

    def kl(self) -> Tensor:
        """sum_c KL(q(theta_c) || p(theta_c)) / N, to be added to a mean negative log-likelihood."""
        return dirac.kl(self.noise.rate, self.eps2).sum() / self.dataset_size

    def clamp(self) -> None:
        """Keep the rates where their gradient is finite; call it after every optimizer step."""
        dirac.clamp_(self.noise.rate)

    def undecided(self) -> dict[str, float]:
        """For each site the share of rates that are near neither 0 nor 1."""
        low, high = UNDECIDED
        return {name: float(((r >= low) & (r <= high)).float().mean()) for name, r in self.rates.items()}

    def finish(
        self, *, batches: Iterable[Any] | None = None, optimizer: torch.optim.Optimizer | None = None
    ) -> StageResult:
        """Threshold, fold, remove, recalibrate batch normalisation.

        ``batches`` are inputs for the recalibration (by default the last ones that the model saw in training);
        ``optimizer`` is one that goes on with the smaller network, and its state follows.
        """
        if self.result is not None:
            return self.result
        self._let_go()
        rates, undecided = {k: v.clone() for k, v in self.rates.items()}, self.undecided()
        drop, guarded = {}, []
        for name, rate in rates.items():
            gone = rate > self.threshold  # r_c <- 1 if r_c > T                      (paper, eq. threshold and scale)
            if bool(gone.all()):
                gone[rate.argmin()] = False
                guarded.append(name)
                warnings.warn(f"every channel of {name!r} was redundant; the least redundant one is kept", stacklevel=2)
            self.graph.scale(self.graph[name], 1 - rate)  # W_c <- W_c (1 - r_c): theta becomes its mean
            drop[name] = gone.nonzero().flatten().tolist()
        before = {name: self.graph[name].channels for name in self.names}
        self.graph.remove(drop, optimizer=optimizer)
        recalibrate(self.graph.model, self._recent if batches is None else batches)
        self._recent.clear()
        channels = {name: (before[name], self.graph[name].channels) for name in self.names}
        self.result = StageResult(rates, channels, undecided, self.price, guarded)
        return self.result

    def abandon(self) -> None:
        """Take the noise off the model and change nothing; the stage is over without a result."""
        self._let_go()
        self._recent.clear()

    def _let_go(self) -> None:
        self._watch.remove()
        self.noise.detach()
