"""Bring your own loop: stages of inference over a model, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from torch import nn

from rbprune.bayes import dirac
from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, Plan, trace
from rbprune.methods import Price, Stage, schedule

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
        noise: Literal["example", "batch"] = "example",
        threshold: float = 0.5,
        rate_init: float = dirac.RATE_INIT,
        keep: Sequence[str] = (),
        only: Sequence[str] | None = None,
    ) -> None:
        if dataset_size < 1:
            raise ConfigError(f"dataset_size is the number of training examples; {dataset_size} is not one")
        self.model = model
        self.graph: ChannelGraph = trace(model, example_inputs, keep=keep)
        self.stages: list[list[str]] = schedule(method, self.graph, only)
        """The sites of each stage, by name."""
        self._options: dict[str, Any] = {
            "dataset_size": dataset_size,
            "price": (price or DEFAULT_PRICE).resolve(self.graph, dataset_size),
            "noise": noise,
            "threshold": threshold,
            "rate_init": rate_init,
        }

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
        return Stage(self.graph, self.stages[number], remember=remember, **self._options)

    @property
    def plan(self) -> Plan:
        """What has been removed so far."""
        return self.graph.plan()
