"""Bring your own loop: stages of inference over a model, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from rbprune.bayes import dirac
from rbprune.errors import ConfigError, nearest
from rbprune.graph import ChannelGraph, Plan, trace
from rbprune.methods import Price, Settings, Stage, find_method, schedule
from rbprune.methods.cost_target import LEAST, share_for
from rbprune.methods.registry import Method

DEFAULT_PRICE = Price(nats_per_example=2.0)


class Pruner:
    """Iterates over the stages of a method; each stage's ``finish`` makes the network smaller.

    >>> import torch
    >>> from torch.nn import functional as F
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> pruner = Pruner(model, torch.zeros(1, 8), dataset_size=100, price=Price(nats=20))
    >>> for stage in pruner:
    ...     optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3, rate_lr=1e-2))
    ...     for _ in range(3):
    ...         x, y = torch.randn(32, 8), torch.randint(2, (32,))
    ...         loss = F.cross_entropy(model(x), y) + stage.kl()
    ...         optimizer.zero_grad(); loss.backward(); optimizer.step(); stage.clamp()
    ...     result = stage.finish()
    >>> pruner.graph.macs() <= 8 * 16 + 16 * 2
    True
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        *,
        dataset_size: int,
        method: str = "rbp",
        price: Price | None = None,
        noise: Literal["example", "batch"] | None = None,
        threshold: float | None = None,
        rate_init: float = dirac.RATE_INIT,
        rates: Literal["adam", "fixed-point"] = "adam",
        keep: Sequence[str] = (),
        only: Sequence[str] | None = None,
        macs_ratio: float | None = None,
        least: float = LEAST,
        downsampling: bool = False,
        method_options: Mapping[str, float] | None = None,
    ) -> None:
        if dataset_size < 1:
            raise ConfigError(f"dataset_size is the number of training examples; {dataset_size} is not one")
        self.model = model
        self.graph: ChannelGraph = trace(model, example_inputs, keep=keep)
        self.method = find_method(method)
        _check_options(self.method, method_options or {})
        self.stages: list[list[str]] = schedule(method, self.graph, only, downsampling=downsampling)
        """The sites of each stage, by name."""
        macs = None if macs_ratio is None else self.graph.macs() / macs_ratio
        self.settings = Settings(
            dataset_size,
            price=(price or DEFAULT_PRICE).resolve(self.graph, dataset_size),
            noise=noise,
            threshold=threshold,
            rate_init=rate_init,
            rates=rates,
            options=method_options or {},
            macs=macs if len(self.stages) == 1 or self.method.stage.aims(rates) else None,
            least=least,
            shares=self._shares(macs, least, rates),
        )

    def _shares(self, macs: float | None, least: float, rates: str) -> dict[str, float]:
        """For a method that is told how much to cut: the same share of every site."""
        stage = self.method.stage
        if stage.needs_ratio and macs is None:
            raise ConfigError(f"method {self.method.name!r} must be told how much to cut: set prune.macs_ratio=2")
        if macs is None:
            return {}
        if len(self.stages) > 1 and not stage.needs_ratio and not stage.aims(rates):
            raise ConfigError(
                f"method {self.method.name!r} decides layer by layer how much to cut, so it cannot aim at "
                "prune.macs_ratio; leave it out and change prune.price, take a method of one stage (ibp), or, for rbp "
                "and rrbp on a classifier, prune.rates=fixed-point"
            )
        if stage.cuts_itself and not stage.needs_ratio:
            return {}
        # also where the shares are not used: what is out of reach shall be told before hours of training
        shares = share_for(self.graph, [name for names in self.stages for name in names], macs, least)
        return shares if stage.needs_ratio else {}

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        for number in range(len(self.stages)):
            stage = self.stage(number)
            try:
                yield stage
            except GeneratorExit:
                stage.abandon()
                raise
            stage.finish()

    def stage(self, number: int, *, remember: bool = True) -> Stage:
        """Begin one stage: its noise is on the model until ``finish``.

        With ``remember`` it holds on to the last inputs, for the recalibration in ``finish``.
        """
        settings = self.settings
        if settings.macs is not None:
            settings = replace(settings, later=tuple(name for names in self.stages[number + 1 :] for name in names))
        return self.method.stage(self.graph, self.stages[number], settings, remember=remember)

    @property
    def plan(self) -> Plan:
        """What has been removed so far."""
        return self.graph.plan()


def _check_options(method: Method, options: Mapping[str, float]) -> None:
    known = method.stage.options
    unknown = [name for name in options if name not in known]
    if unknown:
        has = f"it has: {', '.join(known)}" if known else "it has none"
        raise ConfigError(
            f"prune.options.{unknown[0]} is no option of {method.name!r}{nearest(unknown[0], known)}; {has}"
        )
